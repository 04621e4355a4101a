// A TypeScript client lists and reads everything a server has: node client.mjs (auto|legacy|modern|sdk1) URL
// Prints one JSON object: {version, resources: [uri], templates: [uriTemplate], reads: {uri: contents},
// completions: {uriTemplate: values}}, of each template's first variable, where the server declares them.
// The version is null where the client does not tell it.
const [mode, url] = process.argv.slice(2);

async function connected() {
  if (mode === 'sdk1') {
    const { Client } = await import('@modelcontextprotocol/sdk/client/index.js');
    const { StreamableHTTPClientTransport } = await import('@modelcontextprotocol/sdk/client/streamableHttp.js');
    const client = new Client({ name: 'test', version: '1' });
    await client.connect(new StreamableHTTPClientTransport(new URL(url)));
    return client;
  }
  const { Client, StreamableHTTPClientTransport } = await import('@modelcontextprotocol/client');
  const negotiation = mode === 'modern' ? { pin: '2026-07-28' } : mode;
  const client = new Client({ name: 'test', version: '1' }, { versionNegotiation: { mode: negotiation } });
  await client.connect(new StreamableHTTPClientTransport(new URL(url)));
  return client;
}

async function everything(list, key) {
  const found = [];
  let cursor;
  do {
    const page = await list(cursor === undefined ? {} : { cursor });
    found.push(...page[key]);
    cursor = page.nextCursor;
  } while (cursor !== undefined);
  return found;
}

const client = await connected();
const resources = await everything((params) => client.listResources(params), 'resources');
const templates = await everything((params) => client.listResourceTemplates(params), 'resourceTemplates');
const reads = {};
for (const { uri } of resources) {
  reads[uri] = (await client.readResource({ uri })).contents;
}
const completions = {};
for (const { uriTemplate } of client.getServerCapabilities()?.completions ? templates : []) {
  const [, name] = uriTemplate.match(/\{\W?(\w+)/);
  const ref = { type: 'ref/resource', uri: uriTemplate };
  completions[uriTemplate] = (await client.complete({ ref, argument: { name, value: '' } })).completion.values;
}
console.log(JSON.stringify({
  version: client.getNegotiatedProtocolVersion?.() ?? null,
  resources: resources.map(({ uri }) => uri),
  templates: templates.map(({ uriTemplate }) => uriTemplate),
  reads,
  completions,
}));
await client.close();
