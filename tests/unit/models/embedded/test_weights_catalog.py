"""The catalog data is valid."""

import re
from pathlib import Path

import pytest

from hermes.models.embedded.weights import (
    ENGINE_REQUIREMENTS,
    ModelFolder,
    best_fit,
    chosen_weights,
    find_weights,
    folder_at,
    folder_under,
    local_server_in,
    weights_catalog,
)
from hermes.schema.errors import ConfigError
from support.cases import cases

GB = 10**9


def test_every_entry_is_complete() -> None:
    names = [one.name for one in weights_catalog()]
    assert len(set(names)) == len(names)
    for one in weights_catalog():
        assert re.fullmatch(r"[0-9a-f]{64}", one.sha256)
        assert one.licence == "Apache-2.0"
        assert one.context <= one.window
        assert not one.hub or re.match(r"https://\S+\.gguf$", one.hub)
        packages = one.packages
        assert packages is not None
        assert all(re.fullmatch(r"[0-9a-f]{64}", wheel) for wheel in packages.wheels)
        assert (len(packages.wheels) - 1) * packages.step < one.size
        assert one.size <= len(packages.wheels) * packages.step


def test_engine_is_pinned_by_digest() -> None:
    text = ENGINE_REQUIREMENTS.read_text()
    assert re.search(r"^xllamacpp==[\d.]+ \\$", text, re.MULTILINE)
    assert text.count("--hash=sha256:") >= 1
    assert "http" not in text


@cases(
    ("memory", "disk", "name"),
    [
        (4 * GB, 2 * GB, "qwen2.5-coder-1.5b"),
        (64 * GB, 100 * GB, "qwen2.5-coder-1.5b"),
        (4 * GB - 1, 100 * GB, "qwen2.5-coder-0.5b"),
        (64 * GB, GB, "qwen2.5-coder-0.5b"),
        (0, 0, "qwen2.5-coder-0.5b"),
    ],
)
def test_best_fit(memory: int, disk: int, name: str) -> None:
    assert best_fit(memory, disk).name == name


def test_misspelled_name_gets_a_suggestion() -> None:
    with pytest.raises(ConfigError) as caught:
        find_weights("qwen2.5-coder-1.5")
    assert "qwen2.5-coder-1.5b" in caught.value.hint


def create_sparse_file(model_folder: ModelFolder, name: str, size: int | None = None) -> None:
    """Create a create_sparse_file file of the right size."""
    one = find_weights(name)
    model_folder.folder.mkdir(parents=True, exist_ok=True)
    with model_folder.weights_path(one).open("wb") as file:
        file.truncate(one.size if size is None else size)


def test_installed_models_are_listed(tmp_path: Path) -> None:
    model_folder = folder_under(tmp_path)
    assert folder_at(model_folder.url) == model_folder
    assert local_server_in(model_folder) == ()
    create_sparse_file(model_folder, "smollm2-135m")
    create_sparse_file(model_folder, "qwen2.5-coder-0.5b", 12)
    assert model_folder.installed_models() == {"smollm2-135m": 8192}
    assert chosen_weights("", model_folder.url).name == "smollm2-135m"
    assert chosen_weights("qwen2.5-coder-1.5b", model_folder.url).name == "qwen2.5-coder-1.5b"
    if not model_folder.has_engine:
        assert local_server_in(model_folder) == ()
    (model_folder.engine_folder / "xllamacpp").mkdir(parents=True)
    (found,) = local_server_in(model_folder)
    assert (found.provider, list(found.models)) == ("embedded", ["smollm2-135m"])
