// A TypeScript client that listens: node listener.mjs (legacy|modern|sdk1) URL URI...
// Prints a line for each thing it is told, as tests/legacy/listener.py does, and `closed WHY` at the end.
const [mode, url, ...uris] = process.argv.slice(2);

async function connected() {
  if (mode === 'sdk1') {
    const { Client } = await import('@modelcontextprotocol/sdk/client/index.js');
    const { StreamableHTTPClientTransport } = await import('@modelcontextprotocol/sdk/client/streamableHttp.js');
    const types = await import('@modelcontextprotocol/sdk/types.js');
    const client = new Client({ name: 'test', version: '1' });
    await client.connect(new StreamableHTTPClientTransport(new URL(url)));
    return [client, types.ResourceUpdatedNotificationSchema, types.ResourceListChangedNotificationSchema];
  }
  const { Client, StreamableHTTPClientTransport } = await import('@modelcontextprotocol/client');
  const negotiation = mode === 'modern' ? { pin: '2026-07-28' } : mode;
  const client = new Client({ name: 'test', version: '1' }, { versionNegotiation: { mode: negotiation } });
  await client.connect(new StreamableHTTPClientTransport(new URL(url)));
  return [client, 'notifications/resources/updated', 'notifications/resources/list_changed'];
}

const [client, updated, listChanged] = await connected();
client.setNotificationHandler(updated, async ({ params }) => {
  const { contents } = await client.readResource({ uri: params.uri });
  console.log('updated', params.uri, contents[0].text);
});
client.setNotificationHandler(listChanged, () => console.log('list_changed'));
let subscription;
if (mode === 'modern') {
  subscription = await client.listen({ resourcesListChanged: true, resourceSubscriptions: uris });
} else {
  for (const uri of uris) {
    await client.subscribeResource({ uri });
  }
}
console.log('listening', JSON.stringify(client.getServerCapabilities()));
process.on('SIGUSR1', async () => {
  await subscription?.close();
  console.log('unsubscribed');
});
if (subscription) {
  console.log('closed', await subscription.closed);
}
setInterval(() => {}, 1000);
