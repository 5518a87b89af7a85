"""Choosing constants of a kernel: by measuring (`autotune`) or by rule (`heuristics`).

    @isthmus.autotune([isthmus.Config({"BLOCK": 64}), isthmus.Config({"BLOCK": 256})], key=["n"])
    @isthmus.jit
    def kernel(x_ptr, n, BLOCK: tl.constexpr): ...

The first launch for each value of `key` runs every configuration on the launch's own arrays. What
the kernel writes is saved before and put back after each run, so that a launch changes data once
no matter how many configurations were tried.
"""

from __future__ import annotations

import functools
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from isthmus.core.errors import DeviceError, KernelError
from isthmus.jit.arguments import type_name
from isthmus.jit.compile import CompiledKernel
from isthmus.jit.decorator import JitFunction
from isthmus.jit.written import written_arguments
from isthmus.language.source import KernelSource

__all__ = ["Autotuner", "Config", "Heuristics", "autotune", "heuristics"]

#: A configuration is timed for this long or this often, whichever comes first.
_BUDGET_S, _REPEATS = 0.02, 20

Named = Mapping[str, Any]


class Config:
    """Constants to try together: `kwargs` by parameter name.

    num_warps, num_stages and other hints are kept and passed on; `pre_hook` is called with all
    arguments by name before each launch with this configuration.
    """

    def __init__(
        self, kwargs: Mapping[str, Any], *, num_warps: int = 4, num_stages: int = 3,
        num_ctas: int = 1, maxnreg: int | None = None,
        pre_hook: Callable[[dict[str, Any]], None] | None = None, **hints: Any,
    ) -> None:  # fmt: skip
        self.kwargs = dict(kwargs)
        self.num_warps, self.num_stages, self.num_ctas = num_warps, num_stages, num_ctas
        self.maxnreg = maxnreg
        self.hints = hints
        self.pre_hook = pre_hook

    def all_kwargs(self) -> dict[str, Any]:
        """The constants, and the hints that kernels accept."""
        return {
            **self.kwargs, "num_warps": self.num_warps, "num_stages": self.num_stages, **self.hints,
        }  # fmt: skip

    def __repr__(self) -> str:
        return f"Config({', '.join(f'{name}={value}' for name, value in self.kwargs.items())})"


class _Wrapper(ABC):
    """A kernel with something done before it is launched."""

    def __init__(self, fn: Any) -> None:
        if not isinstance(fn, (JitFunction, _Wrapper)):
            raise KernelError(
                f"{getattr(fn, '__name__', fn)!r} is not a kernel",
                hint="put @isthmus.jit below @isthmus.autotune and @isthmus.heuristics",
                code="K122",
            )
        self.fn = fn
        self.arg_names: tuple[str, ...] = fn.arg_names
        self.__name__ = fn.source.name
        self.__doc__ = fn.__doc__

    @property
    def source(self) -> KernelSource:
        return self.fn.source

    def __getitem__(self, grid: Any) -> Callable[..., CompiledKernel]:
        return functools.partial(self.run, grid=grid)

    @abstractmethod
    def run(self, *arguments: Any, grid: Any, **keywords: Any) -> CompiledKernel:
        """Launch over `grid`."""

    @abstractmethod
    def warmup(self, *arguments: Any, grid: Any = (1,), **keywords: Any) -> CompiledKernel:
        """Compile what a launch would run, without running it."""

    def _named(self, arguments: Sequence[Any], keywords: Named) -> dict[str, Any]:
        """Arguments by parameter name, defaults included."""
        named = {p.name: p.default for p in self.source.parameters if p.has_default}
        named.update(zip(self.arg_names, arguments, strict=False))
        named.update(keywords)
        return named


class Heuristics(_Wrapper):
    """Constants computed from the other arguments at each launch."""

    def __init__(self, fn: Any, values: Mapping[str, Callable[[dict[str, Any]], Any]]) -> None:
        super().__init__(fn)
        self.values = dict(values)

    def run(self, *arguments: Any, grid: Any, **keywords: Any) -> CompiledKernel:
        return self.fn.run(*arguments, grid=grid, **self._filled(arguments, keywords))

    def warmup(self, *arguments: Any, grid: Any = (1,), **keywords: Any) -> CompiledKernel:
        return self.fn.warmup(*arguments, grid=grid, **self._filled(arguments, keywords))

    def _filled(self, arguments: Sequence[Any], keywords: dict[str, Any]) -> dict[str, Any]:
        named = self._named(arguments, keywords)
        for name, rule in self.values.items():
            named[name] = keywords[name] = rule(named)
        return keywords


class Autotuner(_Wrapper):
    """A kernel whose constants are the fastest of `configs`, by the values of `key`.

    cache: key -> configuration; best_config: that of the last launch; timings: seconds of each
    configuration when it was last tuned (infinite where it did not compile).
    """

    def __init__(
        self, fn: Any, configs: Sequence[Config], key: Sequence[str], *,
        reset_to_zero: Sequence[str] = (), restore_value: Sequence[str] = (),
        prune_configs_by: Mapping[str, Any] | None = None,
        pre_hook: Callable[..., None] | None = None, post_hook: Callable[..., None] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(fn)
        self.configs = list(configs) or [Config({})]
        self.keys = list(key)
        known = set(self.arg_names)
        wrong = [n for n in (*key, *reset_to_zero, *restore_value) if n not in known]
        if wrong:
            raise KernelError(
                f"autotune names {', '.join(wrong)}, but {self.source.name} has no such argument",
                hint=f"its arguments are {', '.join(self.arg_names)}",
                code="K122",
            )
        self.reset_to_zero, self.restore_value = tuple(reset_to_zero), tuple(restore_value)
        self._prune = dict(prune_configs_by or {})
        self._pre_hook, self._post_hook = pre_hook, post_hook
        self.cache: dict[tuple[Any, ...], Config] = {}
        self.timings: dict[Config, float] = {}
        self.best_config: Config | None = None

    def run(self, *arguments: Any, grid: Any, **keywords: Any) -> CompiledKernel:
        named = self._named(arguments, keywords)
        self._check_conflicts(arguments, keywords)
        config = self.configs[0]
        if len(self.configs) > 1:
            key = self._key(named)
            if key not in self.cache:
                self.cache[key] = self._tune(arguments, keywords, named, grid)
            config = self.cache[key]
        self.best_config = config
        return self._run_with(config, arguments, keywords, named, grid)

    def warmup(self, *arguments: Any, grid: Any = (1,), **keywords: Any) -> CompiledKernel:
        """Compile all configurations without running them; gives the first."""
        compiled = [
            self.fn.warmup(*arguments, grid=grid, **keywords, **config.all_kwargs())
            for config in self._candidates(self._named(arguments, keywords))
        ]
        return compiled[0]

    def _check_conflicts(self, arguments: Sequence[Any], keywords: Named) -> None:
        given = {*self.arg_names[: len(arguments)], *keywords}
        for config in self.configs:
            both = given & config.kwargs.keys()
            if both:
                raise DeviceError(
                    f"kernel {self.source.name} got {', '.join(sorted(both))}, which autotune sets",
                    hint="leave it out of the launch, or out of the configurations",
                )

    def _key(self, named: Named) -> tuple[Any, ...]:
        types = tuple(type_name(value) for value in named.values())
        return tuple(named.get(name) for name in self.keys), types

    def _candidates(self, named: Named) -> list[Config]:
        configs = self.configs
        early = self._prune.get("early_config_prune")
        if early is not None:
            configs = list(early(list(configs), dict(named)))
            if not configs:
                raise DeviceError(f"early_config_prune of {self.source.name} left no configuration")
        model, most = self._prune.get("perf_model"), self._prune.get("top_k", len(configs))
        if model is not None:
            count = int(most * len(configs)) if isinstance(most, float) else most
            ranked = sorted(configs, key=lambda one: model(**{**named, **one.all_kwargs()}))
            configs = ranked[: max(1, count)]
        return configs

    def _run_with(
        self, config: Config, arguments: Sequence[Any], keywords: Named, named: Named, grid: Any
    ) -> CompiledKernel:
        if config.pre_hook is not None:
            config.pre_hook({**named, **config.all_kwargs()})
        return self.fn.run(*arguments, grid=grid, **{**keywords, **config.all_kwargs()})

    def _tune(self, arguments: Sequence[Any], keywords: Named, named: Named, grid: Any) -> Config:
        candidates = self._candidates(named)
        if len(candidates) == 1:
            return candidates[0]
        self.timings = dict.fromkeys(candidates, float("inf"))
        refusal: KernelError | None = None
        saved: _Saved | None = None
        for config in candidates:
            try:
                compiled = self.fn.warmup(
                    *arguments, grid=grid, **{**keywords, **config.all_kwargs()}
                )
            except KernelError as error:
                refusal = error
                continue
            if saved is None:
                saved = _Saved(named, {*_written(compiled), *self.restore_value})
            self.timings[config] = min(self._times(config, arguments, keywords, named, grid, saved))
        if saved is None:
            assert refusal is not None, "no configuration compiled, so one was refused"
            raise refusal
        return min(candidates, key=self.timings.__getitem__)

    def _times(
        self, config: Config, arguments: Sequence[Any], keywords: Named, named: Named, grid: Any,
        saved: _Saved,
    ) -> Iterator[float]:  # fmt: skip
        """Seconds of several runs; the arrays are as they were after each."""
        deadline = time.perf_counter() + _BUDGET_S
        for _ in range(_REPEATS):
            for name in self.reset_to_zero:
                _detached(named[name])[...] = 0
            if self._pre_hook is not None:
                self._pre_hook(dict(named))
            try:
                start = time.perf_counter()
                self._run_with(config, arguments, keywords, named, grid)
                end = time.perf_counter()
                if self._post_hook is not None:
                    self._post_hook(dict(named), exception=None)
            finally:
                saved.restore()
            yield end - start
            if end > deadline:
                return


class _Saved:
    """Copies of arrays, to be put back."""

    def __init__(self, named: Named, names: set[str]) -> None:
        self._arrays = [_detached(named[name]) for name in sorted(names)
                        if type_name(named[name]) is not None]  # fmt: skip
        self._copies = [
            array.copy() if isinstance(array, np.ndarray) else array.clone()
            for array in self._arrays
        ]

    def restore(self) -> None:
        for array, copy in zip(self._arrays, self._copies, strict=True):
            array[...] = copy


def _detached(array: Any) -> Any:
    """A PyTorch tensor apart from the autograd graph, so that it can be written to."""
    return array.detach() if hasattr(array, "detach") else array


def _written(compiled: CompiledKernel) -> list[str]:
    """Names of the arguments that a kernel writes to."""
    names = list(compiled.specialisation.signature)
    return [names[number] for number in written_arguments(compiled.stages().tile)]


def autotune(
    configs: Sequence[Config], key: Sequence[str], *, reset_to_zero: Sequence[str] | None = None,
    restore_value: Sequence[str] | None = None, prune_configs_by: Mapping[str, Any] | None = None,
    pre_hook: Callable[..., None] | None = None, post_hook: Callable[..., None] | None = None,
    warmup: Any = None, rep: Any = None, use_cuda_graph: bool = False, do_bench: Any = None,
    cache_results: bool = False,
) -> Callable[[Any], Autotuner]:  # fmt: skip
    """Measure `configs` at the first launch for each value of the arguments in `key`.

    reset_to_zero: arrays that are zeroed before each measured run. restore_value: arrays that
    are put back after each, besides those that the kernel is seen to write to.
    prune_configs_by: {"early_config_prune": f(configs, arguments), "perf_model": f(**arguments),
    "top_k": how many to measure}. The other settings are Triton's and make no difference.
    """
    del warmup, rep, use_cuda_graph, do_bench, cache_results

    def wrap(fn: Any) -> Autotuner:
        return Autotuner(
            fn, configs, key, reset_to_zero=reset_to_zero or (), restore_value=restore_value or (),
            prune_configs_by=prune_configs_by, pre_hook=pre_hook, post_hook=post_hook,
        )  # fmt: skip

    return wrap


def heuristics(
    values: Mapping[str, Callable[[dict[str, Any]], Any]],
) -> Callable[[Any], Heuristics]:
    """Constants that are functions of the other arguments: name -> f(arguments by name)."""
    return lambda fn: Heuristics(fn, values)
