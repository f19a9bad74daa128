"""The sizes of a model from its config.json, as Hugging Face writes it."""

import json
from pathlib import Path

from kvroll_cli.errors import CliError
from kvroll_core.budget import ModelShape


def read_shape(path: Path) -> ModelShape:
    """The shape of the model in that folder, or of that config.json.

    Raises:
        CliError: there is no such file, or it describes no decoder-only transformer that we know.
    """
    file = path / "config.json" if path.is_dir() else path
    try:
        config = json.loads(file.read_text())
        heads = config["num_attention_heads"]
        return ModelShape(
            layers=config["num_hidden_layers"],
            hidden=config["hidden_size"],
            heads=heads,
            kv_heads=config.get("num_key_value_heads") or heads,
            head_dim=config.get("head_dim") or config["hidden_size"] // heads,
            intermediate=config["intermediate_size"],
            vocab=config["vocab_size"],
            tied_head=bool(config.get("tie_word_embeddings", False)),
            max_positions=config["max_position_embeddings"],
        )
    except OSError as error:
        raise CliError(
            f"expected a model folder or its config.json, found {error.strerror.lower() if error.strerror else error}: {file}"
        ) from error
    except ValueError as error:
        raise CliError(f"expected JSON in {file}, found {error}") from error
    except KeyError as error:
        raise CliError(
            f"expected {error.args[0]} in {file}, as in the config.json of a decoder-only transformer, found none"
        ) from error
