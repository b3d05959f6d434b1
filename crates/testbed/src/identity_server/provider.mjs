// An OpenID provider with two accounts: `node provider.mjs PACKAGE PORT [CERTIFICATE KEY]`. It does what lines of JSON on its standard input ask, and
// answers each with a line.
import { createHmac, generateKeyPairSync, sign as makeSignature } from 'node:crypto';
import { readFileSync } from 'node:fs';
import * as http from 'node:http';
import * as https from 'node:https';
import { createInterface } from 'node:readline';
import { pathToFileURL } from 'node:url';

// What the library says is for people.
console.info = console.error;
const [, , library, port, certificate, key] = process.argv;
const { default: Provider } = await import(pathToFileURL(library));
const issuer = `${certificate ? 'https' : 'http'}://127.0.0.1:${port}`;
const accounts = {
  u1001: { preferred_username: 'alice', groups: ['climate'] },
  u1002: { preferred_username: 'olga', groups: ['climate', 'hpc-ops'] },
};
const ID_TOKEN_S = 600;
let idTokenS = ID_TOKEN_S;
let slowOnce = false;
let polls = [];

// As many keys as there are kinds, the kind of the first signing what nobody asks otherwise.
let made = 0;
function makeKeys() {
  made += 1;
  const pairs = {
    RS256: generateKeyPairSync('rsa', { modulusLength: 2048 }),
    ES256: generateKeyPairSync('ec', { namedCurve: 'P-256' }),
    EdDSA: generateKeyPairSync('ed25519'),
  };
  return Object.entries(pairs).map(([alg, pair]) => {
    const kid = `${alg}-${made}`;
    const jwk = { ...pair.privateKey.export({ format: 'jwk' }), kid, alg, use: 'sig' };
    return { alg, kid, pair, jwk };
  });
}

function makeProvider(keys) {
  const provider = new Provider(issuer, {
    jwks: { keys: keys.map((key) => key.jwk) },
    clients: [{
      client_id: 'posthaste',
      token_endpoint_auth_method: 'none',
      application_type: 'native',
      grant_types: ['urn:ietf:params:oauth:grant-type:device_code', 'refresh_token'],
      redirect_uris: [],
      response_types: [],
    }],
    claims: { openid: ['sub'], profile: ['preferred_username'], groups: ['groups'] },
    scopes: ['openid', 'offline_access', 'groups'],
    conformIdTokenClaims: false,
    cookies: { keys: ['known to everybody who reads this'] },
    features: { deviceFlow: { enabled: true }, revocation: { enabled: true } },
    findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id, ...accounts[id] }) }),
    ttl: { IdToken: () => idTokenS, RefreshToken: 86400, Grant: 86400, AccessToken: 600, Session: 600, Interaction: 600, DeviceCode: 600 },
  });
  provider.use(async (ctx, next) => {
    if (ctx.path === '/token') {
      polls.push(Date.now());
      if (slowOnce) {
        slowOnce = false;
        ctx.status = 400;
        ctx.body = { error: 'slow_down' };
        return;
      }
    }
    await next();
    if (ctx.path === '/device/auth' && ctx.status === 200) ctx.body = { ...ctx.body, interval: 1 };
  });
  return provider;
}

let keys = makeKeys();
const foreign = makeKeys();
let answer = makeProvider(keys).callback();
const listener = (request, response) => answer(request, response);
const server = certificate
  ? https.createServer({ cert: readFileSync(certificate), key: readFileSync(key) }, listener)
  : http.createServer(listener);
server.listen(Number(port), '127.0.0.1');

const encode = (value) => Buffer.from(JSON.stringify(value)).toString('base64url');

// A token as anybody could make one, signed by whoever is named.
function sign({ header = {}, claims = {}, by = 'RS256', whose = 'ours' }) {
  const now = Math.floor(Date.now() / 1000);
  const key = (whose === 'ours' ? keys : foreign).find((one) => one.alg === by) ?? keys[0];
  const head = { alg: by, typ: 'JWT', kid: whose === 'ours' ? key.kid : keys.find((one) => one.alg === key.alg).kid, ...header };
  const said = { iss: issuer, sub: 'u1001', aud: 'posthaste', iat: now, exp: now + 600, ...accounts.u1001, ...claims };
  const signed = `${encode(head)}.${encode(said)}`;
  const { privateKey, publicKey } = key.pair;
  let signature = '';
  if (by === 'HS256') {
    // What confuses who takes a public key for a shared secret.
    const secret = publicKey.export({ format: 'pem', type: 'spki' });
    signature = createHmac('sha256', secret).update(signed).digest('base64url');
  } else if (by !== 'none') {
    const digest = by === 'EdDSA' ? null : 'sha256';
    const how = { key: privateKey, dsaEncoding: 'ieee-p1363' };
    signature = makeSignature(digest, Buffer.from(signed), how).toString('base64url');
  }
  return `${signed}.${signature}`;
}

// Goes from page to page as a browser does that fills in what it is asked.
async function browse(address, fields) {
  const cookies = new Map();
  let url = new URL(address);
  let form;
  let page = '';
  let said;
  for (let steps = 0; steps < 30; steps += 1) {
    const response = await fetch(url, {
      method: form ? 'POST' : 'GET',
      body: form,
      redirect: 'manual',
      headers: { cookie: [...cookies].map(([name, value]) => `${name}=${value}`).join('; ') },
    });
    for (const set of response.headers.getSetCookie()) {
      const [name, ...value] = set.split(';')[0].split('=');
      cookies.set(name, value.join('='));
    }
    form = undefined;
    page = await response.text();
    const location = response.headers.get('location');
    if (location) {
      url = new URL(location, url);
      continue;
    }
    if (said === 'no') return page;
    const found = /<form[^>]*action="([^"]*)"[^>]*>([^]*?)<\/form>/.exec(page);
    if (!found) return page.replace(/<style[^]*?<\/style>/g, ' ').replace(/<[^>]*>/g, ' ').replace(/\s+/g, ' ').trim();
    form = new URLSearchParams();
    for (const [input] of found[2].matchAll(/<input[^>]*>/g)) {
      const name = /name="([^"]*)"/.exec(input)?.[1];
      if (name) form.set(name, fields[name] ?? /value="([^"]*)"/.exec(input)?.[1] ?? '');
    }
    if (fields.abort && form.has('confirm')) {
      form.delete('confirm');
      form.set('abort', 'yes');
      said = 'no';
    }
    url = new URL(found[1], url);
  }
  throw new Error(`no end of pages: ${page}`);
}

const chores = {
  sign,
  approve: ({ url, login }) => browse(url, { login, password: 'any' }),
  deny: ({ url }) => browse(url, { abort: true }),
  rotate: () => {
    keys = makeKeys();
    answer = makeProvider(keys).callback();
    return 'done';
  },
  live: ({ s = ID_TOKEN_S }) => { idTokenS = s; return 'done'; },
  slow: () => { slowOnce = true; return 'done'; },
  polls: () => { const so = polls.join(' '); polls = []; return so; },
};

for await (const line of createInterface({ input: process.stdin })) {
  const { chore, ...what } = JSON.parse(line);
  let said;
  try {
    said = { said: await chores[chore](what) };
  } catch (error) {
    said = { failed: `${error} ${error.cause ?? ''}` };
  }
  process.stdout.write(`${JSON.stringify(said)}\n`);
}
process.exit(0);
