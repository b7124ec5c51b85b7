// The SDKs of `.node/`, which lies beside the tests and not above them.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const require = createRequire(`${process.env.CLIENTS}/`);

export async function client(name) {
  return await import(pathToFileURL(require.resolve(name)));
}

/** Runs the case that the command line names; what it returns is printed as JSON for the test to look at. */
export async function run(cases) {
  const [name, url] = process.argv.slice(2);
  console.log(JSON.stringify((await cases[name](url)) ?? null));
}
