"""The agent's device is signed with the keys of its account, which the recovery key unlocks."""

import asyncio
import base64
import json
import os
from pathlib import Path
from typing import Any

import pytest
from Crypto.PublicKey import ECC
from Crypto.Signature import eddsa
from msgspec import Struct

from hermes.channels.matrix.channel import open_channel
from hermes.channels.matrix.cross_signing import (
    SELF_SIGNING,
    decode_recovery_key,
    encode_recovery_key,
    encrypt_secret,
)
from hermes.schema.errors import ConfigError
from support.matrix import PASSWORD, channel_deps, new_user
from support.synapse import Homeserver, call

pytestmark = pytest.mark.slow

CLIENT = "/_matrix/client/v3"


class Account(Struct, frozen=True):
    user: str
    token: str
    self_signing: str
    recovery_key: str


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode().rstrip("=")


def signed(key: Any, user: str, name: str, content: dict[str, Any]) -> dict[str, Any]:
    text = json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
    signature = b64(eddsa.new(key, "rfc8032").sign(text))
    return {**content, "signatures": {user: {name: signature}}}


def create_account(server: Homeserver) -> Account:
    """Register somebody with cross-signing and secret storage, as a client would set it up."""
    user = new_user(server, "agent")
    who = {"type": "m.id.user", "user": user}
    fields = {"type": "m.login.password", "identifier": who, "password": PASSWORD}
    token = call(server, "POST", f"{CLIENT}/login", fields)["access_token"]
    master, seed = ECC.generate(curve="Ed25519"), os.urandom(32)
    own = ECC.construct(curve="Ed25519", seed=seed)
    names = [b64(one.public_key().export_key(format="raw")) for one in (master, own)]

    def described(name: str, usage: str) -> dict[str, Any]:
        return {"user_id": user, "usage": [usage], "keys": {f"ed25519:{name}": name}}

    second = signed(master, user, f"ed25519:{names[0]}", described(names[1], "self_signing"))
    keys = {"master_key": described(names[0], "master"), "self_signing_key": second}
    call(server, "POST", f"{CLIENT}/keys/device_signing/upload", keys, token)
    secret, iv = os.urandom(32), bytes(8) + os.urandom(8)
    _, proof = encrypt_secret(secret, "", bytes(32), iv)
    ciphertext, mac = encrypt_secret(secret, SELF_SIGNING, b64(seed).encode(), iv)
    data: dict[str, Any] = {
        "m.secret_storage.default_key": {"key": "k"},
        "m.secret_storage.key.k": {
            "algorithm": "m.secret_storage.v1.aes-hmac-sha2", "iv": b64(iv), "mac": b64(proof),
        },
        SELF_SIGNING: {
            "encrypted": {"k": {"iv": b64(iv), "ciphertext": b64(ciphertext), "mac": b64(mac)}}
        },
    }  # fmt: skip
    for name, content in data.items():
        call(server, "PUT", f"{CLIENT}/user/{user}/account_data/{name}", content, token)
    return Account(user, token, names[1], encode_recovery_key(secret))


async def test_recovery_key_signs_the_device(homeserver: Homeserver, tmp_path: Path) -> None:
    account = await asyncio.to_thread(create_account, homeserver)
    wrong = {"MATRIX_RECOVERY_KEY": encode_recovery_key(os.urandom(32))}
    deps = channel_deps(tmp_path, homeserver.url, account.user, env=wrong)
    async with open_channel(deps) as channel:
        with pytest.raises(ConfigError, match="recovery key does not match"):
            await channel._device.ready()
    right = {"MATRIX_RECOVERY_KEY": account.recovery_key}
    deps = channel_deps(tmp_path, homeserver.url, account.user, env=right)
    async with open_channel(deps) as channel:
        opened = await channel._device.ready()
    path, query = f"{CLIENT}/keys/query", {"device_keys": {account.user: []}}
    found: Any = await asyncio.to_thread(call, homeserver, "POST", path, query, account.token)
    device = found["device_keys"][account.user][opened.login.device_id]
    assert f"ed25519:{account.self_signing}" in device["signatures"][account.user]


def keys_of(server: Homeserver, user: str, token: str) -> Any:
    asked: dict[str, Any] = {"device_keys": {user: []}}
    return call(server, "POST", f"{CLIENT}/keys/query", asked, token)


async def test_recovery_key_is_created_once(homeserver: Homeserver, tmp_path: Path) -> None:
    """A file without keys, as after a crash, is used; keys on the server are never replaced."""
    user, folder = await asyncio.to_thread(new_user, homeserver, "agent"), tmp_path / "home"
    env = {"MATRIX_RECOVERY_KEY_OUTPUT_FILE": "secrets/key.txt"}
    file, seen = folder / "secrets" / "key.txt", list[Any]()
    file.parent.mkdir(parents=True)
    prepared = encode_recovery_key(os.urandom(32))
    file.write_text(prepared)
    for _ in range(2):
        async with open_channel(channel_deps(folder, homeserver.url, user, env=env)) as channel:
            opened = await channel._device.ready()
            seen.append(
                await asyncio.to_thread(keys_of, homeserver, user, opened.login.access_token)
            )
        assert file.read_text() == prepared
    first, second = seen
    for usage in ("master_keys", "self_signing_keys", "user_signing_keys"):
        assert first[usage][user] == second[usage][user]
    (own,) = first["self_signing_keys"][user]["keys"]
    assert own in second["device_keys"][user][opened.login.device_id]["signatures"][user]
    # Another device needs the key only.
    deps = channel_deps(
        tmp_path / "other", homeserver.url, user, env={"MATRIX_RECOVERY_KEY": prepared}
    )
    async with open_channel(deps) as channel:
        assert (await channel._device.ready()).account_keys


async def test_new_recovery_key_is_readable_for_the_owner_only(
    homeserver: Homeserver, tmp_path: Path
) -> None:
    user = await asyncio.to_thread(new_user, homeserver, "agent")
    file = tmp_path / "key.txt"
    env = {"MATRIX_RECOVERY_KEY_OUTPUT_FILE": str(file)}
    async with open_channel(channel_deps(tmp_path, homeserver.url, user, env=env)) as channel:
        assert (await channel._device.ready()).account_keys
    assert file.stat().st_mode & 0o777 == 0o600
    assert len(decode_recovery_key(file.read_text())) == 32


async def test_keys_of_another_client_are_kept(homeserver: Homeserver, tmp_path: Path) -> None:
    account = await asyncio.to_thread(create_account, homeserver)
    before = await asyncio.to_thread(keys_of, homeserver, account.user, account.token)
    file = tmp_path / "key.txt"
    env = {"MATRIX_RECOVERY_KEY_OUTPUT_FILE": str(file)}
    deps = channel_deps(tmp_path, homeserver.url, account.user, env=env)
    async with open_channel(deps) as channel:
        assert not (await channel._device.ready()).account_keys
    after = await asyncio.to_thread(keys_of, homeserver, account.user, account.token)
    assert before["master_keys"] == after["master_keys"]
    assert not file.exists()
