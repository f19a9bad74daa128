"""What an engine does over a window, and what it has counted of it at each look."""

from dataclasses import dataclass, replace

LOOKS = 11
EVERY_SECONDS = 3.0


@dataclass(frozen=True)
class Scene:
    """A batch of `sessions` of `context` tokens that makes a step every `step_seconds`, and prompts that come beside it.

    `ran` is the share of the looks at which something runs; in between nothing does. Bytes and operations are those of the model, whole:
    an engine over `devices` counts its share of them.
    """

    step_seconds: float
    sessions: float
    context: float
    prompt_tokens_per_second: float = 0.0
    waiting: float = 0.0
    kv_used: float = 0.4
    preemptions_per_second: float = 0.0
    prefix_hit_share: float = 0.25
    ran: float = 1.0
    weights_bytes: float = 16.1e9  # Llama-3.1-8B in 16 bits
    kv_token_bytes: float = 131072.0
    token_flops: float = 16.0e9
    pool_tokens: int = 432_000
    devices: int = 1

    def at(self, look: int) -> "Counted":
        """What the engine shows at its nth look, from 0; it has served before."""
        active = sum(self._runs(n) for n in range(1, look + 1)) * EVERY_SECONDS
        runs = self._runs(look)
        steps = active / self.step_seconds
        generated = steps * self.sessions
        prompts = active * self.prompt_tokens_per_second
        read = steps * (self.weights_bytes + self.sessions * self.context * self.kv_token_bytes)
        computed = prompts * (1 - self.prefix_hit_share) + generated
        return Counted(
            scene=self,
            running=self.sessions if runs else 0.0,
            waiting=self.waiting if runs else 0.0,
            kv_used=self.kv_used if runs else 0.0,
            steps=50_000 + steps,
            prompt_tokens=9e6 + prompts,
            prefix_hits=2e6 + prompts * self.prefix_hit_share,
            generated_tokens=3e6 + generated,
            read_bytes=1e14 + read / self.devices,
            flops=1e15 + computed * self.token_flops / self.devices,
            preemptions=7 + active * self.preemptions_per_second,
            inter_token_seconds=self.step_seconds,
        )

    def but(self, **changes: float) -> "Scene":
        """The same with these figures."""
        return replace(self, **changes)  # type: ignore[arg-type]

    def _runs(self, look: int) -> bool:
        """Spread evenly: of ten looks at 0.3 three."""
        return int((look + 1) * self.ran) > int(look * self.ran)


@dataclass(frozen=True)
class Counted:
    """Gauges and totals at one look."""

    scene: Scene
    running: float
    waiting: float
    kv_used: float
    steps: float
    prompt_tokens: float
    prefix_hits: float
    generated_tokens: float
    read_bytes: float
    flops: float
    preemptions: float
    inter_token_seconds: float
