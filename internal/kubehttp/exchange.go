package kubehttp

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
)

// maxAnswer bounds an answer of [Exchange], in bytes.
const maxAnswer = 1 << 20

// Exchange is [Send] for a request whose answer matters: it decodes an answer of success into
// answer, and returns the message of another one, which the API server words for people. The
// context bounds the request. A body of nil sends none.
func Exchange(ctx context.Context, client *http.Client, method, url string, body, answer any) (status int, message string, err error) {
	var content io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return 0, "", err
		}
		content = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(ctx, method, url, content)
	if err != nil {
		return 0, "", err
	}
	request.Header.Set("Accept", "application/json")
	if request.Header.Set("Content-Type", "application/json"); method == http.MethodPatch {
		request.Header.Set("Content-Type", "application/merge-patch+json")
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, "", fmt.Errorf("the API server does not answer: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return 0, "", fmt.Errorf("the answer of the API server broke off: %w", err)
	}
	if response.StatusCode >= http.StatusMultipleChoices {
		var refusal struct{ Message string }
		_ = json.Unmarshal(text, &refusal) // a proxy's answer is another text
		return response.StatusCode, refusal.Message, nil
	}
	if err := json.Unmarshal(text, answer); err != nil {
		return response.StatusCode, "", fmt.Errorf("the API server answers no JSON: %w", err)
	}
	return response.StatusCode, "", nil
}
