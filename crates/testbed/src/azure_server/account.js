// What somebody with the account's key does before a test: makes a container or removes one, signs
// a SAS token, issues a bearer token. Written from Azure's documentation, apart from what is tested.
const crypto = require("crypto");
const http = require("http");
const https = require("https");

const [chore, base, account, key, name] = process.argv.slice(1);
const version = "2021-12-02";
const sign = (text) =>
  crypto.createHmac("sha256", Buffer.from(key, "base64")).update(text, "utf8").digest("base64");
const fail = (why) => {
  process.stderr.write(`${why}\n`);
  process.exit(1);
};

function changeContainer(method, wanted) {
  const url = new URL(`${base}/${name}?restype=container`);
  const date = new Date().toUTCString();
  const text =
    `${method}\n\n\n\n\n\n\n\n\n\n\n\n` +
    `x-ms-date:${date}\nx-ms-version:${version}\n/${account}${url.pathname}\nrestype:container`;
  const headers = {
    "x-ms-date": date,
    "x-ms-version": version,
    "content-length": 0,
    authorization: `SharedKey ${account}:${sign(text)}`,
  };
  const web = url.protocol === "https:" ? https : http;
  // The certificate is the test's own.
  const options = { method, headers, rejectUnauthorized: false };
  web
    .request(url, options, (answer) => {
      answer.resume();
      if (!wanted.includes(answer.statusCode)) fail(`the server answered ${answer.statusCode}`);
    })
    .on("error", (error) => fail(error.message))
    .end();
}

function sasToken() {
  const permissions = name;
  const expiry = new Date(Date.now() + 3600e3).toISOString().slice(0, 19) + "Z";
  const fields = [account, permissions, "b", "co", "", expiry, "", "https,http", version, "", ""];
  const query = new URLSearchParams({
    sv: version,
    ss: "b",
    srt: "co",
    sp: permissions,
    se: expiry,
    spr: "https,http",
    sig: sign(fields.join("\n")),
  });
  process.stdout.write(query.toString());
}

function bearerToken() {
  const now = Math.floor(Date.now() / 1000);
  const part = (value) => Buffer.from(JSON.stringify(value)).toString("base64url");
  const claims = {
    aud: "https://storage.azure.com",
    iss: "https://sts.windows.net/testbed/",
    iat: now - 60,
    nbf: now - 60,
    exp: now + 3600,
  };
  process.stdout.write(`${part({ alg: "RS256", typ: "JWT" })}.${part(claims)}.${part("testbed")}`);
}

const chores = {
  container: () => changeContainer("PUT", [201]),
  removal: () => changeContainer("DELETE", [202, 404]),
  sas: sasToken,
  token: bearerToken,
};
chores[chore]();
