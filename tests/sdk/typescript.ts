// Posts, claims and deletes with the TypeScript client that openapi-generator makes of the document. The server is the
// first argument; the client lies in the folder `client` beside this file.

import { ClaimsApi, Configuration, MessagesApi, QueuesApi, ResponseError } from "./client";

declare const process: { argv: string[]; exitCode: number };
declare const console: { log(...parts: unknown[]): void; error(...parts: unknown[]): void };

const QUEUE = "typescript";

function equal(actual: unknown, expected: unknown): void {
    const [a, b] = [JSON.stringify(actual), JSON.stringify(expected)];
    if (a !== b) {
        throw new Error(`${a} is not ${b}`);
    }
}

async function postClaimDelete(configuration: Configuration): Promise<void> {
    const messages = new MessagesApi(configuration);
    const claims = new ClaimsApi(configuration);
    const queues = new QueuesApi(configuration);
    await queues.queueCreate({ queueName: QUEUE, requestBody: { team: "billing" } });
    equal((await queues.queueGet({ queueName: QUEUE }))["team"], "billing");

    const bodies = [{ invoice: 4711 }, "text", [1, 2.5, true]];
    const posted = await messages.messagesPost({
        queueName: QUEUE,
        postBody: { messages: bodies.map((body) => ({ body, ttl: 600 })) },
    });
    const claim = await claims.claimCreate({ queueName: QUEUE, limit: 10, claimBody: { ttl: 60, grace: 60 } });
    if (!claim) {
        throw new Error("there is something to claim");
    }
    equal(claim.messages.map((message) => message.id), posted.ids);
    equal(claim.messages.map((message) => message.body), bodies);
    await claims.claimRenew({ queueName: QUEUE, claimId: claim.id, renewBody: { ttl: 120 } });
    equal((await claims.claimGet({ queueName: QUEUE, claimId: claim.id })).ttl, 120);

    for (const message of claim.messages) {
        await messages.messageDelete({ queueName: QUEUE, messageId: message.id, claimId: claim.id });
    }
    await claims.claimRelease({ queueName: QUEUE, claimId: claim.id });
    equal((await queues.queueStats({ queueName: QUEUE })).messages.total, 0);
}

async function errorsAreRead(configuration: Configuration): Promise<void> {
    const messageId = "00000000-0000-0000-0000-000000000001";
    try {
        await new MessagesApi(configuration).messageGet({ queueName: QUEUE, messageId });
    } catch (error) {
        if (error instanceof ResponseError) {
            equal((await error.response.json()).code, "not_found");
            return;
        }
        throw error;
    }
    throw new Error("there is no such message");
}

async function main(): Promise<void> {
    const configuration = new Configuration({ basePath: process.argv[2] });
    for (const part of [postClaimDelete, errorsAreRead]) {
        console.log(part.name);
        await part(configuration);
    }
}

main().catch((error) => {
    console.error(error);
    process.exitCode = 1;
});
