"""The sizes of a model from its config.json, as Hugging Face writes it."""

import json
from pathlib import Path

from kvroll_cli.errors import CliError
from kvroll_core.budget import ModelShape, ShapeError


def read_shape(path: Path) -> ModelShape:
    """The shape of the model in that folder, or of that config.json.

    Raises:
        CliError: there is no such file, or it describes no decoder-only transformer that we can count.
    """
    file = path / "config.json" if path.is_dir() else path
    try:
        return ModelShape.from_config(json.loads(file.read_text()))
    except OSError as error:
        found = error.strerror.lower() if error.strerror else error
        raise CliError(f"expected a model folder or its config.json, found {found}: {file}") from error
    except ShapeError as error:
        raise CliError(f"{file}: {error}") from error
    except ValueError as error:
        raise CliError(f"expected JSON in {file}, found {error}") from error
