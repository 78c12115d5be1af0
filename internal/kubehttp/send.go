package kubehttp

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"
)

// sendTimeout bounds a request of [Send].
const sendTimeout = 10 * time.Second

// Send sends a small body as JSON to an API server, with PATCH as a merge patch, and returns the
// status of the answer. client authenticates the router.
func Send(ctx context.Context, client *http.Client, method, url string, body any) (status int, err error) {
	text, err := json.Marshal(body)
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(text))
	if err != nil {
		return 0, err
	}
	request.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		request.Header.Set("Content-Type", "application/merge-patch+json")
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, fmt.Errorf("the API server does not answer: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	// The rest of a small answer, so that the connection is used again.
	_, _ = io.CopyN(io.Discard, response.Body, 64<<10)
	return response.StatusCode, nil
}
