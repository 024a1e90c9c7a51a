// The tour of the README with the client that @hey-api/openapi-ts makes of the document. The server is the first argument; the
// client lies in the folder `hey` beside this file.

import * as sdk from "./hey";
import { client } from "./hey/client.gen";

declare const process: { argv: string[]; exitCode: number };
declare const console: { log(...parts: unknown[]): void; error(...parts: unknown[]): void };

const path = { queue_name: "hey-api" };
const throwOnError = true;

function equal(actual: unknown, expected: unknown): void {
    const [a, b] = [JSON.stringify(actual), JSON.stringify(expected)];
    if (a !== b) {
        throw new Error(`${a} is not ${b}`);
    }
}

async function tour(): Promise<void> {
    await sdk.queueCreate({ path, body: { _default_message_ttl: 600, team: "billing" }, throwOnError });
    const shown = (await sdk.queueGet({ path, throwOnError })).data;
    equal([shown._default_message_ttl, shown["team"]], [600, "billing"]);
    const change = { op: "replace", path: "/metadata/team", value: "sales" };
    equal((await sdk.queueUpdate({ path, body: [change], throwOnError })).data["team"], "sales");

    const bodies = [{ invoice: 4711 }, "text", null, [1, 2.5, true]];
    const messages = bodies.map((body) => ({ body, ttl: 600 }));
    const posted = (await sdk.messagesPost({ path, body: { messages }, throwOnError })).data;
    equal(posted.durability, "sync");
    const terms = { ttl: 60, grace: 60 };
    const claim = (await sdk.claimCreate({ path, query: { limit: 10 }, body: terms, throwOnError })).data;
    if (!claim) {
        throw new Error("there is something to claim");
    }
    equal(claim.messages.map((message) => message.id), posted.ids);
    equal(claim.messages.map((message) => message.body), bodies);
    const claimPath = { ...path, claim_id: claim.id };
    await sdk.claimRenew({ path: claimPath, body: { ttl: 120 }, throwOnError });
    equal((await sdk.claimGet({ path: claimPath, throwOnError })).data.ttl, 120);

    const [first, ...others] = posted.ids;
    for (const message_id of others) {
        await sdk.messageDelete({ path: { ...path, message_id }, query: { claim_id: claim.id }, throwOnError });
    }
    await sdk.claimRelease({ path: claimPath, throwOnError });
    const headers = { "Client-ID": "30387f00d4ba4c12ac0ea31e6e5e0bc1" };
    const left = (await sdk.messagesList({ path, headers, throwOnError })).data;
    equal(left.messages.map((message) => message.id), [first]);
    await sdk.messageDelete({ path: { ...path, message_id: first }, throwOnError });
    equal((await sdk.queueStatsGet({ path, throwOnError })).data.messages.total, 0);
}

async function sqs(): Promise<void> {
    const named = { QueueName: path.queue_name };
    const found = await sdk.sqsQueueUrlGet({
        headers: { "X-Amz-Target": "AmazonSQS.GetQueueUrl" }, body: named, throwOnError,
    });
    const { QueueUrl } = found.data;
    await sdk.sqsMessageSend({
        headers: { "X-Amz-Target": "AmazonSQS.SendMessage" }, body: { QueueUrl, MessageBody: "hello" }, throwOnError,
    });
    const received = await sdk.sqsMessageReceive({
        headers: { "X-Amz-Target": "AmazonSQS.ReceiveMessage" }, body: { QueueUrl }, throwOnError,
    });
    equal(received.data.Messages?.map((message) => message.Body), ["hello"]);
}

async function errorsAreRead(): Promise<void> {
    const message_id = "00000000-0000-0000-0000-000000000001";
    const { error } = await sdk.messageGet({ path: { ...path, message_id } });
    equal([error?.code, error?.may_retry], ["not_found", false]);
}

async function main(): Promise<void> {
    client.setConfig({ baseUrl: process.argv[2] });
    for (const part of [tour, sqs, errorsAreRead]) {
        console.log(part.name);
        await part();
    }
}

main().catch((error) => {
    console.error(error);
    process.exitCode = 1;
});
