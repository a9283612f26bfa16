// Makes a container in Azurite's account, as a client of Azure does: make_container.mjs http://HOST:PORT/devstoreaccount1 NAME KEY
import { createHmac } from "node:crypto";

const [, , endpoint, container, key] = process.argv;
const account = new URL(endpoint).pathname.slice(1);
const date = new Date().toUTCString();
const version = "2021-12-02";
const headers = `x-ms-date:${date}\nx-ms-version:${version}\n`;
const text = `PUT\n\n\n\n\n\n\n\n\n\n\n\n${headers}/${account}/${account}/${container}\nrestype:container`;
const signature = createHmac("sha256", Buffer.from(key, "base64")).update(text).digest("base64");
const answer = await fetch(`${endpoint}/${container}?restype=container`, {
  method: "PUT",
  headers: { "x-ms-date": date, "x-ms-version": version, Authorization: `SharedKey ${account}:${signature}` },
});
if (answer.status !== 201) {
  console.error(answer.status, await answer.text());
  process.exit(1);
}
