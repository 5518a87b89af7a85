"""Text from a file, a folder, or the running Python's standard library."""

from __future__ import annotations

import sysconfig
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from isthmus.core.errors import DataError

__all__ = ["Corpus", "read_corpus", "standard_library"]

#: Folders of the standard library that hold tests and fixtures rather than the library.
_SKIPPED_FOLDERS = frozenset(
    {"test", "tests", "idle_test", "idlelib", "lib2to3", "site-packages", "dist-packages",
     "__pycache__", "turtledemo", "ensurepip", "config"}
)  # fmt: skip
#: Endings that are never text.
_BINARY_ENDINGS = frozenset(
    {".pyc", ".so", ".png", ".jpg", ".jpeg", ".gif", ".zip", ".gz", ".bz2", ".xz", ".whl",
     ".pdf", ".safetensors", ".npy", ".npz", ".exe", ".dll", ".a", ".o", ".ico", ".woff2"}
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Corpus:
    """Documents in a fixed order: `names[i]` is where `documents[i]` came from."""

    names: tuple[str, ...]
    documents: tuple[bytes, ...]

    @property
    def size_bytes(self) -> int:
        return sum(map(len, self.documents))


def standard_library() -> Path:
    """The folder of the running Python's standard library."""
    return Path(sysconfig.get_paths()["stdlib"])


def _text_files(folder: Path, endings: Sequence[str] | None) -> Iterator[Path]:
    for path in sorted(folder.rglob("*"), key=lambda p: p.relative_to(folder).as_posix()):
        parts = path.relative_to(folder).parts
        if any(part in _SKIPPED_FOLDERS or part.startswith(".") for part in parts[:-1]):
            continue
        if path.name.startswith(".") or path.suffix.lower() in _BINARY_ENDINGS:
            continue
        if endings is not None and path.suffix not in endings:
            continue
        if path.is_file():
            yield path


def read_corpus(source: Path | str | None = None, endings: Sequence[str] | None = None) -> Corpus:
    """Read every text file under `source`, in the order of their names.

    source: a file, a folder, or None for the standard library's Python files.
    endings: only files with these endings, for example (".py", ".md"); None takes all but the
        known binary ones.
    A file that is not UTF-8 is left out when found in a folder and refused when named itself.

    Raises: DataError when nothing is there, nothing can be read, or all is empty.
    """
    if source is None:
        root, endings = standard_library(), (".py",)
    else:
        root = Path(source).expanduser()
    if not root.exists():
        raise DataError(
            f"no such file or folder: {root}",
            hint="--data takes a text file, or a folder of text files",
        )
    try:
        paths = [root] if root.is_file() else list(_text_files(root, endings))
    except OSError as error:
        raise DataError(f"cannot list {root}: {error.strerror}") from error
    names, documents = [], []
    for path in paths:
        try:
            text = path.read_bytes()
        except OSError as error:
            raise DataError(f"cannot read {path}: {error.strerror}") from error
        try:
            text.decode("utf-8")
        except UnicodeDecodeError as error:
            if root.is_file():
                raise DataError(
                    f"{path} is not UTF-8 text: byte {error.start} is {text[error.start]:#04x}",
                    hint="convert it first, for example: iconv -f latin1 -t utf-8",
                ) from error
            continue
        if text:
            names.append(path.name if root.is_file() else path.relative_to(root).as_posix())
            documents.append(text)
    if not documents:
        what = "is empty" if root.is_file() else "holds no text"
        raise DataError(f"{root} {what}", hint="--data takes a text file, or a folder of them")
    return Corpus(tuple(names), tuple(documents))
