// Loaded into every Node process of a test: this machine can be reached, nothing else, and each try is written down.
"use strict";

const dgram = require("node:dgram");
const dns = require("node:dns");
const fs = require("node:fs");
const net = require("node:net");

const LOOPBACK = /^(localhost|127(\.\d{1,3}){3}|::1|::ffff:127(\.\d{1,3}){3}|\[::1\])$/i;

Error.stackTraceLimit = 40;
function refuse(what, host) {
  const where = new Error().stack.split("\n").slice(3).join(" | ");
  fs.appendFileSync(process.env.LOOPBACK_ONLY_REFUSED, `${what} ${host} by ${process.argv.slice(1, 4).join(" ")} at ${where}\n`);
  return Object.assign(new Error(`${what} ${host}: only this machine can be reached`), { code: "ENETUNREACH" });
}

function isOutside(host) {
  return typeof host === "string" && host !== "" && !LOOPBACK.test(host);
}

const connect = net.Socket.prototype.connect;
net.Socket.prototype.connect = function (...given) {
  const first = Array.isArray(given[0]) ? given[0][0] : given[0]; // net.connect hands its normalised arguments on
  const host = first !== null && typeof first === "object" ? (first.path ? "" : first.host) : given[1];
  if (isOutside(host)) {
    const error = refuse("connect", host);
    process.nextTick(() => this.destroy(error));
    return this;
  }
  return connect.apply(this, given);
};

for (const owner of [dns, dns.promises]) {
  for (const name of Object.keys(owner).filter((each) => /^(lookup|resolve)/.test(each))) {
    const original = owner[name];
    if (typeof original !== "function") continue;
    owner[name] = function (host, ...rest) {
      if (!isOutside(host)) return original.call(this, host, ...rest);
      const error = refuse(name, host);
      const callback = rest.at(-1);
      if (owner === dns && typeof callback === "function") return void process.nextTick(callback, error);
      return Promise.reject(error);
    };
  }
}

const send = dgram.Socket.prototype.send;
dgram.Socket.prototype.send = function (...given) {
  const host = given.find((each, place) => place > 0 && typeof each === "string");
  if (isOutside(host)) throw refuse("send", host);
  return send.apply(this, given);
};
