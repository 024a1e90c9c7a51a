// The tour of the README with the TypeScript client that openapi-generator makes of the document. The server is the first
// argument; the client lies in the folder `client` beside this file.

import { ClaimsApi, Configuration, Durability, ErrorCode, MessagesApi, QueuesApi, ResponseError, SqsApi } from "./client";
import {
    SqsMessageReceiveXAmzTargetEnum, SqsMessageSendXAmzTargetEnum, SqsQueueUrlGetXAmzTargetEnum,
} from "./client";

declare const process: { argv: string[]; exitCode: number };
declare const console: { log(...parts: unknown[]): void; error(...parts: unknown[]): void };

const QUEUE = "typescript";

function equal(actual: unknown, expected: unknown): void {
    const [a, b] = [JSON.stringify(actual), JSON.stringify(expected)];
    if (a !== b) {
        throw new Error(`${a} is not ${b}`);
    }
}

async function tour(configuration: Configuration): Promise<void> {
    const messages = new MessagesApi(configuration);
    const claims = new ClaimsApi(configuration);
    const queues = new QueuesApi(configuration);
    await queues.queueCreate({ queueName: QUEUE, queueAttributes: { defaultMessageTtl: 600, team: "billing" } });
    const shown = await queues.queueGet({ queueName: QUEUE });
    equal([shown.defaultMessageTtl, shown["team"]], [600, "billing"]);
    const change = { op: "replace", path: "/metadata/team", value: "sales" };
    equal((await queues.queueUpdate({ queueName: QUEUE, queuePatchOperation: [change] }))["team"], "sales");

    const bodies = [{ invoice: 4711 }, "text", [1, 2.5, true]];
    const posted = await messages.messagesPost({
        queueName: QUEUE,
        messagePostRequest: { messages: bodies.map((body) => ({ body, ttl: 600 })) },
    });
    equal(posted.durability, Durability.Sync);
    const claim = await claims.claimCreate({ queueName: QUEUE, limit: 10, claimTerms: { ttl: 60, grace: 60 } });
    if (!claim) {
        throw new Error("there is something to claim");
    }
    equal(claim.messages.map((message) => message.id), posted.ids);
    equal(claim.messages.map((message) => message.body), bodies);
    await claims.claimRenew({ queueName: QUEUE, claimId: claim.id, claimTerms: { ttl: 120 } });
    equal((await claims.claimGet({ queueName: QUEUE, claimId: claim.id })).ttl, 120);

    const [first, ...others] = posted.ids;
    for (const messageId of others) {
        await messages.messageDelete({ queueName: QUEUE, messageId, claimId: claim.id });
    }
    await claims.claimRelease({ queueName: QUEUE, claimId: claim.id });
    const left = await messages.messagesList({ queueName: QUEUE, clientID: "30387f00d4ba4c12ac0ea31e6e5e0bc1" });
    equal(left.messages.map((message) => message.id), [first]);
    await messages.messageDelete({ queueName: QUEUE, messageId: first });
    equal((await queues.queueStatsGet({ queueName: QUEUE })).messages.total, 0);
}

async function sqs(configuration: Configuration): Promise<void> {
    const api = new SqsApi(configuration);
    const { queueUrl } = await api.sqsQueueUrlGet({
        xAmzTarget: SqsQueueUrlGetXAmzTargetEnum.AmazonSqsGetQueueUrl,
        getQueueUrlRequest: { queueName: QUEUE },
    });
    await api.sqsMessageSend({
        xAmzTarget: SqsMessageSendXAmzTargetEnum.AmazonSqsSendMessage,
        sendMessageRequest: { queueUrl, messageBody: "hello" },
    });
    const received = await api.sqsMessageReceive({
        xAmzTarget: SqsMessageReceiveXAmzTargetEnum.AmazonSqsReceiveMessage,
        receiveMessageRequest: { queueUrl },
    });
    equal(received.messages?.map((message) => message.body), ["hello"]);
}

async function errorsAreRead(configuration: Configuration): Promise<void> {
    const messageId = "00000000-0000-0000-0000-000000000001";
    try {
        await new MessagesApi(configuration).messageGet({ queueName: QUEUE, messageId });
    } catch (error) {
        if (error instanceof ResponseError) {
            equal((await error.response.json()).code, ErrorCode.NotFound);
            return;
        }
        throw error;
    }
    throw new Error("there is no such message");
}

async function main(): Promise<void> {
    const configuration = new Configuration({ basePath: process.argv[2] });
    for (const part of [tour, sqs, errorsAreRead]) {
        console.log(part.name);
        await part(configuration);
    }
}

main().catch((error) => {
    console.error(error);
    process.exitCode = 1;
});
