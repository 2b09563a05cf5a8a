"""`gateway.session_context` has the names of the public module and behaves like it."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context, copy_context
from functools import partial
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.compat import gateway_session_context as ours

SEED = Path(__file__).parents[4] / "shared" / "seeds" / "session_context.py"
NAMES = sorted(ours._VAR_MAP)
VALUES = st.sampled_from(["", "a", "b"])
SESSION = [
    *("platform", "source", "chat_id", "chat_name", "thread_id", "user_id", "user_name"),
    *("session_key", "session_id", "message_id", "profile", "cwd"),
]


@pytest.fixture(scope="module")
def public() -> ModuleType:
    if not SEED.exists():
        if os.environ.get("HERMES_SEEDS") == "required":
            pytest.fail(f"{SEED} is missing")
        pytest.skip("the public module is not here")
    spec = spec_from_file_location("public_session_context", SEED)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


STEPS = st.recursive(
    st.one_of(
        st.tuples(
            st.just("bind"), st.dictionaries(st.sampled_from(SESSION), VALUES), st.booleans()
        ),
        st.tuples(st.sampled_from(["clear", "reset"])),
        st.tuples(st.just("id"), VALUES),
        st.tuples(st.just("set"), st.sampled_from(NAMES), VALUES),
        st.tuples(st.just("undo")),
    ),
    lambda step: st.tuples(st.sampled_from(["task", "thread", "pool"]), st.lists(step, max_size=4)),
    max_leaves=12,
)


def take(module: ModuleType, step: tuple, tokens: list) -> None:
    match step:
        case ("bind", values, later):
            module.set_session_vars(**values, async_delivery=later)
        case ("clear",):
            module.clear_session_vars([])
        case ("reset",):
            module.reset_session_vars()
        case ("id", value):
            module.set_current_session_id(value)
        case ("set", name, value):
            variable = module._VAR_MAP[name]
            tokens.append((variable, variable.set(value)))
        case ("undo",) if tokens:
            variable, token = tokens.pop()
            variable.reset(token)


def observed(module: ModuleType) -> dict[str, object]:
    state: dict[str, object] = {name: module.get_session_env(name, "none") for name in NAMES}
    for name, variable in module._VAR_MAP.items():
        value = variable.get()
        state[f"get {name}"] = "unset" if value is module._UNSET else value
        state[f"is unset {name}"] = variable.get("other") == "other"
    delivery = module._SESSION_ASYNC_DELIVERY.get()
    state["delivery"] = "unset" if delivery is module._UNSET else delivery
    state["later"] = module.async_delivery_supported()
    return state


def play(public: ModuleType, steps: list[tuple], tokens: tuple[list, list]) -> None:
    for step in steps:
        run = partial(play, public, step[1:] and step[1], ([], []))
        match step[0]:
            case "task":
                copy_context().run(run)
            case "thread":
                Context().run(run)
            case "pool":
                with ThreadPoolExecutor(1) as pool:
                    pool.submit(copy_context().run, run).result()
            case _:
                take(public, step, tokens[0])
                take(ours, step, tokens[1])
        assert observed(ours) == observed(public)


@given(steps=st.lists(STEPS, max_size=8), process=st.sampled_from([{}, {NAMES[0]: "process"}]))
def test_behaves_like_the_public_module(
    public: ModuleType, steps: list[tuple], process: dict[str, str]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for name in NAMES:
            patch.setenv(name, "")  # so that it is restored
            patch.delenv(name)
        for name, value in process.items():
            patch.setenv(name, value)
        Context().run(play, public, steps, ([], []))
        assert ours._session_context_engaged or not public._session_context_engaged


def test_every_public_name_exists(public: ModuleType) -> None:
    names = {name for name in vars(public) if not name.startswith("__")} - {"ContextVar", "Any"}
    assert len(names) == 25
    assert not [name for name in names if not hasattr(ours, name)]


def test_stateless_channel_only_rules_out_later_delivery() -> None:
    def declare() -> None:
        ours.declare_stateless_channel()
        assert not ours.async_delivery_supported()
        assert ours._SESSION_PLATFORM.get() is ours._UNSET

    Context().run(declare)
    assert ours.async_delivery_supported()


def test_token_is_used_once_and_by_its_own_variable() -> None:
    def use() -> None:
        token = ours._SESSION_KEY.set("k")
        with pytest.raises(ValueError, match="HERMES_SESSION_KEY"):
            ours._SESSION_ID.reset(token)
        ours._SESSION_ID.set("s")
        ours._SESSION_KEY.reset(token)
        assert ours._SESSION_ID.get() == "s"
        with pytest.raises(RuntimeError):
            ours._SESSION_KEY.reset(token)

    Context().run(use)


def test_only_a_bound_session_engages_the_context() -> None:
    code = (
        "from hermes.compat import gateway_session_context as ours\n"
        "ours.declare_stateless_channel()\n"
        "print(ours._session_context_engaged, ours.async_delivery_supported())\n"
        "ours.set_session_vars(platform='telegram')\n"
        "print(ours._session_context_engaged)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False", "True"]
