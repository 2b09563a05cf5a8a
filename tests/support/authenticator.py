"""A passkey in software: it makes and signs what a browser sends, and can be made to lie."""

import base64
import hashlib
import json
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

PRESENT_AND_VERIFIED = 0x05


def encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


class Authenticator:
    def __init__(self, origin: str, host: str = "localhost") -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.id = encoded(b"passkey-1")
        self.origin = origin
        self.host = host
        self.flags = PRESENT_AND_VERIFIED
        self.count = 0

    def new_passkey(self, challenge: str, **changes: Any) -> dict[str, Any]:
        public = self.key.public_key()
        der = public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        return {
            "id": self.id,
            "clientData": encoded(self._client_data("webauthn.create", challenge)),
            "authenticatorData": encoded(self._data()),
            "publicKey": encoded(der),
            "algorithm": -7,
            "name": "laptop",
        } | changes

    def answer(self, challenge: str, *, kind: str = "webauthn.get") -> dict[str, Any]:
        client_data, data = self._client_data(kind, challenge), self._data()
        signed = data + hashlib.sha256(client_data).digest()
        return {
            "id": self.id,
            "clientData": encoded(client_data),
            "authenticatorData": encoded(data),
            "signature": encoded(self.key.sign(signed, ec.ECDSA(SHA256()))),
        }

    def _client_data(self, kind: str, challenge: str) -> bytes:
        return json.dumps({"type": kind, "challenge": challenge, "origin": self.origin}).encode()

    def _data(self) -> bytes:
        host = hashlib.sha256(self.host.encode()).digest()
        return host + bytes([self.flags]) + self.count.to_bytes(4)
