// Make a passkey, or log in with one. Binary values are base64url on their way.
// @ts-check

/** @param {string} text */
function decode(text) {
  const binary = atob(text.replace(/-/g, "+").replace(/_/g, "/"));
  return Uint8Array.from(binary, (one) => one.charCodeAt(0));
}

/** @param {ArrayBuffer} data */
function encode(data) {
  const binary = String.fromCharCode(...new Uint8Array(data));
  return btoa(binary).replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");
}

/**
 * Create a passkey and return what the server needs to know about it.
 * @param {any} options @param {string} name
 */
export async function makePasskey(options, name) {
  const publicKey = {
    ...options,
    challenge: decode(options.challenge),
    user: { ...options.user, id: decode(options.user.id) },
    excludeCredentials: options.excludeCredentials.map((/** @type {any} */ one) => ({ ...one, id: decode(one.id) })),
  };
  const made = /** @type {PublicKeyCredential} */ (await navigator.credentials.create({ publicKey }));
  const response = /** @type {AuthenticatorAttestationResponse} */ (made.response);
  return {
    id: made.id,
    clientData: encode(response.clientDataJSON),
    authenticatorData: encode(response.getAuthenticatorData()),
    publicKey: encode(response.getPublicKey() ?? new ArrayBuffer(0)),
    algorithm: response.getPublicKeyAlgorithm(),
    name,
  };
}

/** The answer of a passkey that the person chooses. @param {any} options */
export async function usePasskey(options) {
  const publicKey = { ...options, challenge: decode(options.challenge) };
  const used = /** @type {PublicKeyCredential} */ (await navigator.credentials.get({ publicKey }));
  const response = /** @type {AuthenticatorAssertionResponse} */ (used.response);
  return {
    id: used.id,
    clientData: encode(response.clientDataJSON),
    authenticatorData: encode(response.authenticatorData),
    signature: encode(response.signature),
  };
}
