// A worker with the Go client that openapi-generator makes of the OpenAPI document: claims up to ten messages, works, deletes
// each, and waits for more.
//
//	worker URL QUEUE [COUNT]        with COUNT it ends after so many messages
package main

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"os"
	"strconv"
	"time"

	sdk "example.org/angarium/sdk"
)

const claimSeconds = 60

func work(body any) {
	fmt.Println("working on", body)
}

// renew extends the claim until the work has ended.
func renew(ctx context.Context, client *sdk.APIClient, queue, claim string) {
	terms := sdk.NewClaimTerms()
	terms.SetTtl(claimSeconds)
	ticks := time.NewTicker(claimSeconds * time.Second / 3)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
			if _, err := client.ClaimsAPI.ClaimRenew(ctx, queue, claim).ClaimTerms(*terms).Execute(); err != nil {
				log.Print(err)
			}
		}
	}
}

// next claims messages, works and deletes; it returns how many it has done.
func next(client *sdk.APIClient, queue string) (int, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	terms := sdk.NewClaimTerms()
	terms.SetTtl(claimSeconds)
	terms.SetGrace(60)
	claim, answer, err := client.ClaimsAPI.ClaimCreate(ctx, queue).Limit(10).Wait(20).ClaimTerms(*terms).Execute()
	if answer != nil && answer.StatusCode == http.StatusNoContent {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	go renew(ctx, client, queue, claim.Id)
	for at, message := range claim.Messages {
		work(message.Body)
		if _, err := client.MessagesAPI.MessageDelete(ctx, queue, message.Id).ClaimId(claim.Id).Execute(); err != nil {
			return at, err
		}
	}
	return len(claim.Messages), nil
}

func main() {
	configuration := sdk.NewConfiguration()
	configuration.Servers = sdk.ServerConfigurations{{URL: os.Args[1]}}
	client := sdk.NewAPIClient(configuration)
	count, done := -1, 0
	if len(os.Args) > 3 {
		count, _ = strconv.Atoi(os.Args[3])
	}
	for done != count {
		worked, err := next(client, os.Args[2])
		if err != nil {
			log.Fatal(err)
		}
		done += worked
	}
	fmt.Println("worker.go: done", done)
}
