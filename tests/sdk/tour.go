// The tour of the README with the Go client that openapi-generator makes of the document. The server is the first argument; the
// client is the module around this file.
package main

import (
	"context"
	"fmt"
	"net/http"
	"os"

	sdk "example.org/angarium/sdk"
)

const queue = "go"

func check(err error) {
	if err != nil {
		if failed, ok := err.(*sdk.GenericOpenAPIError); ok {
			panic(fmt.Sprintf("%v: %s", err, failed.Body()))
		}
		panic(err)
	}
}

func equal(actual any, expected any) {
	if a, b := fmt.Sprint(actual), fmt.Sprint(expected); a != b {
		panic(a + " is not " + b)
	}
}

func tour(client *sdk.APIClient) {
	ctx := context.Background()
	attributes := sdk.NewQueueAttributes()
	attributes.SetDefaultMessageTtl(600)
	attributes.AdditionalProperties = map[string]any{"team": "billing"}
	_, err := client.QueuesAPI.QueueCreate(ctx, queue).QueueAttributes(*attributes).Execute()
	check(err)
	shown, _, err := client.QueuesAPI.QueueGet(ctx, queue).Execute()
	check(err)
	equal(shown.GetDefaultMessageTtl(), 600)
	equal(shown.HasFifo(), false)
	change := sdk.NewQueuePatchOperation("replace", "/metadata/team")
	change.SetValue("sales")
	shown, _, err = client.QueuesAPI.QueueUpdate(ctx, queue).QueuePatchOperation([]sdk.QueuePatchOperation{*change}).Execute()
	check(err)
	equal(shown.AdditionalProperties["team"], "sales")

	bodies := []any{map[string]any{"invoice": 4711}, "text", []any{1, 2.5, true}}
	var fresh []sdk.PostedMessage
	for _, body := range bodies {
		message := sdk.NewPostedMessage(body)
		message.SetTtl(600)
		fresh = append(fresh, *message)
	}
	posted, _, err := client.MessagesAPI.MessagesPost(ctx, queue).MessagePostRequest(*sdk.NewMessagePostRequest(fresh)).Execute()
	check(err)
	equal(posted.Durability, sdk.SYNC)

	terms := sdk.NewClaimTerms()
	terms.SetTtl(60)
	terms.SetGrace(60)
	claim, _, err := client.ClaimsAPI.ClaimCreate(ctx, queue).Limit(10).ClaimTerms(*terms).Execute()
	check(err)
	var ids []string
	var claimed []any
	for _, message := range claim.Messages {
		ids, claimed = append(ids, message.Id), append(claimed, message.Body)
	}
	equal(ids, posted.Ids)
	equal(claimed, bodies)
	terms.SetTtl(120)
	_, err = client.ClaimsAPI.ClaimRenew(ctx, queue, claim.Id).ClaimTerms(*terms).Execute()
	check(err)
	status, _, err := client.ClaimsAPI.ClaimGet(ctx, queue, claim.Id).Execute()
	check(err)
	equal(status.Ttl, 120)
	for _, id := range ids[1:] {
		_, err = client.MessagesAPI.MessageDelete(ctx, queue, id).ClaimId(claim.Id).Execute()
		check(err)
	}
	_, err = client.ClaimsAPI.ClaimRelease(ctx, queue, claim.Id).Execute()
	check(err)
	left, _, err := client.MessagesAPI.MessagesList(ctx, queue).ClientID("30387f00d4ba4c12ac0ea31e6e5e0bc1").Execute()
	check(err)
	equal(len(left.Messages), 1)
	equal(left.Messages[0].Id, ids[0])
	_, err = client.MessagesAPI.MessageDelete(ctx, queue, ids[0]).Execute()
	check(err)
	stats, _, err := client.QueuesAPI.QueueStatsGet(ctx, queue).Execute()
	check(err)
	equal(stats.Messages.Total, 0)
}

func sqs(client *sdk.APIClient) {
	ctx := context.Background()
	named := *sdk.NewGetQueueUrlRequest(queue)
	url, _, err := client.SqsAPI.SqsQueueUrlGet(ctx).XAmzTarget("AmazonSQS.GetQueueUrl").GetQueueUrlRequest(named).Execute()
	check(err)
	message := *sdk.NewSendMessageRequest("hello", url.QueueUrl)
	message.MessageBody, message.QueueUrl = "hello", url.QueueUrl
	_, _, err = client.SqsAPI.SqsMessageSend(ctx).XAmzTarget("AmazonSQS.SendMessage").SendMessageRequest(message).Execute()
	check(err)
	wanted := *sdk.NewReceiveMessageRequest(url.QueueUrl)
	received, _, err := client.SqsAPI.SqsMessageReceive(ctx).XAmzTarget("AmazonSQS.ReceiveMessage").ReceiveMessageRequest(wanted).Execute()
	check(err)
	equal(len(received.Messages), 1)
	equal(received.Messages[0].Body, "hello")
}

func errorsAreRead(client *sdk.APIClient) {
	_, answer, err := client.MessagesAPI.MessageGet(context.Background(), queue, "00000000-0000-0000-0000-000000000001").Execute()
	equal(answer.StatusCode, http.StatusNotFound)
	failed := err.(*sdk.GenericOpenAPIError).Model().(sdk.ApiError)
	equal(failed.Code, sdk.NOT_FOUND)
	equal(failed.MayRetry, false)
}

func main() {
	configuration := sdk.NewConfiguration()
	configuration.Servers = sdk.ServerConfigurations{{URL: os.Args[1]}}
	client := sdk.NewAPIClient(configuration)
	for _, part := range []func(*sdk.APIClient){tour, sqs, errorsAreRead} {
		part(client)
	}
}
