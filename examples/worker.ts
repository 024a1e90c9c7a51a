// A worker over REST with fetch: claims up to ten messages, works, deletes each, and waits for more.
//
//     node worker.js URL QUEUE [COUNT]        with COUNT it ends after so many messages

declare const process: { argv: string[]; exitCode: number };

interface Message { id: string; href: string; body: unknown }
interface Claim { messages: Message[] }

const CLAIM_SECONDS = 60;

async function request(method: string, url: string, body?: unknown): Promise<Response> {
    const text = body === undefined ? undefined : JSON.stringify(body);
    // The server waits up to 20 seconds for a message.
    const options = { method, body: text, headers: { "Content-Type": "application/json" }, signal: AbortSignal.timeout(30_000) };
    const answer = await fetch(url, options);
    if (!answer.ok) {
        throw new Error(`${method} ${url}: ${answer.status} ${await answer.text()}`);
    }
    return answer;
}

async function work(body: unknown): Promise<void> {
    console.log("working on", body);
}

async function main(base: string, queue: string, count: number): Promise<void> {
    let done = 0;
    while (done < count) {
        const terms = { ttl: CLAIM_SECONDS, grace: 60 };
        const answer = await request("POST", `${base}/v2/queues/${queue}/claims?limit=10&wait=20`, terms);
        if (answer.status === 204) {
            continue;
        }
        const claim = (await answer.json()) as Claim;
        const url = base + answer.headers.get("Location");
        const renewal = setInterval(() => {
            request("PATCH", url, { ttl: CLAIM_SECONDS }).catch((error) => console.error(error));
        }, CLAIM_SECONDS * 1000 / 3);
        try {
            for (const message of claim.messages) {
                await work(message.body);
                await request("DELETE", base + message.href);
                done += 1;
            }
        } finally {
            clearInterval(renewal);
        }
    }
    console.log("worker.ts: done", done);
}

main(process.argv[2]!, process.argv[3]!, process.argv[4] ? Number(process.argv[4]) : Infinity).catch((error) => {
    console.error(error);
    process.exitCode = 1;
});
