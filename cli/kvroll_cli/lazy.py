"""Commands that are imported when they are asked for."""

from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

if TYPE_CHECKING:
    from typer._click.core import Command, Context


class Verb(TyperCommand):
    """A verb by name, one line for the list of verbs, and where its function is: `package.module:function`.

    The list and the completion of names are made of these; whatever goes deeper (`verb --help`, its options, running it)
    imports the module.
    """

    def __init__(self, name: str, place: str, summary: str) -> None:
        super().__init__(name, help=summary, short_help=summary, rich_markup_mode=None)
        self.place = place

    def loaded(self) -> "Command":
        """The command itself, from the function's signature."""
        module, _, function = self.place.partition(":")
        alone = typer.Typer(add_completion=False, rich_markup_mode=None)
        alone.command(self.name)(getattr(import_module(module), function))
        return get_command(alone)

    def make_context(
        self, info_name: str | None, args: list[str], parent: "Context | None" = None, **extra: Any
    ) -> "Context":
        """The context of the command itself."""
        return self.loaded().make_context(info_name, args, parent=parent, **extra)


class VerbGroup(TyperGroup):
    """A group of such verbs, listed in their order: make a subclass that names them."""

    verbs: ClassVar[tuple[Verb, ...]] = ()

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for verb in self.verbs:
            self.add_command(verb)
