"""Plan files that ``hushnet serve`` serves: a name for each, and what changes while it runs."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import hushnet
from hushnet import HushnetError, InputError, _native
from hushnet.cli.common import plan_file
from hushnet.cli.operate import log

# The name of the only model where its file has none that can be one.
ONLY = "model"


class Hosting:
    """The models of a server, by name, as their files were when they were read."""

    def __init__(self, paths: Sequence[Path], insecure: bool) -> None:
        """Takes plan files and folders of them; nothing is read yet.

        Args:
            insecure: serve plans below 128 bits.
        """
        self.paths, self.insecure = tuple(paths), insecure
        self._folders = {path for path in paths if path.is_dir()}
        self.models: dict[str, hushnet.Model] = {}
        self._read: dict[str, tuple[int, int, int]] = {}

    def files(self) -> dict[str, Path]:
        """The plan files that there are now, by name; a file that was named is among them when it is gone, too.

        Raises:
            InputError: there is no such file at the start, no plan in a folder, or two files have one name.
        """
        found: list[Path] = []
        for path in self.paths:
            if path not in self._folders:
                found.append(path if self.models else plan_file(path))
                continue
            inside = sorted(p for p in path.glob("*.hush") if p.is_file())
            if not inside:
                raise InputError(f"{path}: there is no plan (.hush) in this folder. `hushnet compile` writes plans.")
            found += inside
        if len(found) == 1 and not _native.is_model_name(found[0].stem):
            return {ONLY: found[0]}
        named: dict[str, Path] = {}
        for path in found:
            if path.stem in named:
                raise InputError(f"{path} and {named[path.stem]} have one name. Rename one of them.")
            named[path.stem] = path
        return named

    def load(self) -> dict[str, hushnet.Model]:
        """Reads all files.

        Raises:
            HushnetError: a file that cannot be served.
        """
        for name, path in self.files().items():
            self._read[name], self.models[name] = _stamp(path), self._model(path)
        return self.models

    def reload(self, handle: _native.ServerHandle) -> None:
        """Serves new and changed files from now on, and those no longer that have left their folder.

        A file that cannot be served, and a file that was named and is gone, changes nothing for its model.
        """
        try:
            files = self.files()
        except (HushnetError, OSError) as error:
            log.warning("the models that the server has stay: %s", error)
            return
        for name in sorted(files):
            try:
                stamp = _stamp(files[name])
                if self._read.get(name) == stamp:
                    continue
                model = self._model(files[name])
                self._serve(handle, {**self.models, name: model})
            except (HushnetError, OSError) as error:
                kept = "stays as it was" if name in self.models else "is not served"
                log.warning("model %s %s: %s", name, kept, error)
                continue
            self.models[name], self._read[name] = model, stamp
            log.info("model %s was read again", name)
        kept_models = {name: model for name, model in self.models.items() if name in files}
        if len(kept_models) == len(self.models):
            return
        try:
            self._serve(handle, kept_models)
        except HushnetError as error:
            log.warning("the models that the server has stay: %s", error)
            return
        for name in sorted(self.models.keys() - kept_models.keys()):
            log.info("model %s is no longer served: its file is gone", name)
            del self._read[name]
        self.models = kept_models

    def _model(self, path: Path) -> hushnet.Model:
        model = hushnet.Model.load(path, allow_insecure=self.insecure)
        # refused before it takes the place of another
        model.native(allow_insecure=self.insecure)
        return model

    def _serve(self, handle: _native.ServerHandle, models: Mapping[str, hushnet.Model]) -> None:
        handle.set_models({n: m.native(allow_insecure=self.insecure) for n, m in models.items()})


def _stamp(path: Path) -> tuple[int, int, int]:
    """What tells a file from the one that was there before."""
    about = os.stat(path)
    return about.st_mtime_ns, about.st_size, about.st_ino
