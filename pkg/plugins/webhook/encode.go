package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"
	"unicode/utf8"

	"github.com/deltarouter/deltarouter/internal/cel"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// The content types of requests.
const (
	typeStructured = "application/cloudevents+json"
	typeBatch      = "application/cloudevents-batch+json"
	typeJSON       = "application/json"
	typeText       = "text/plain; charset=utf-8"
)

// message is the body of a request and its headers.
type message struct {
	body   []byte
	header http.Header
}

func newMessage(contentType string, body []byte) *message {
	return &message{body, http.Header{"Content-Type": {contentType}}}
}

// checked returns an error if an event is not a valid CloudEvent, because a guest may set its type.
// Such an event is rejected.
func checked(e *event.Event) error {
	if e.ID == "" || e.Type == "" || e.Source == "" {
		return plugins.Reject(fmt.Errorf("event %s is not a CloudEvent: it has no id, type or source", e.ID))
	}
	return nil
}

// encodeStructured encodes the event as the body.
func encodeStructured(_ context.Context, e *event.Event) (*message, error) {
	if err := checked(e); err != nil {
		return nil, err
	}
	return newMessage(typeStructured, e.AppendJSON(make([]byte, 0, len(e.Data)+512))), nil
}

// encodeBinary encodes the data as the body and the attributes as headers, see
// https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/bindings/http-protocol-binding.md
func encodeBinary(_ context.Context, e *event.Event) (*message, error) {
	if err := checked(e); err != nil {
		return nil, err
	}
	h := http.Header{"Ce-Specversion": {"1.0"}}
	set := func(name, value string) {
		if value != "" {
			h[name] = []string{headerValue(value)}
		}
	}
	set("Ce-Id", e.ID)
	set("Ce-Type", e.Type)
	set("Ce-Source", e.Source)
	set("Ce-Subject", e.Subject)
	if !e.Time.IsZero() {
		set("Ce-Time", e.Time.UTC().Format(time.RFC3339Nano))
	}
	set("Ce-Route", e.Route)
	set("Ce-K8suid", e.K8sUID)
	set("Ce-K8sresourceversion", e.K8sResourceVersion)
	if e.Redelivered {
		set("Ce-Redelivered", "true")
	}
	set("Ce-Traceparent", e.TraceParent)
	if len(e.Data) > 0 {
		h["Content-Type"] = []string{typeJSON}
	}
	return &message{e.Data, h}, nil
}

// headerValue percent-encodes the characters that the binding does not allow in a header: all
// except printable ASCII, and space, " and %.
func headerValue(s string) string {
	fits := func(c byte) bool { return '!' <= c && c <= '~' && c != '"' && c != '%' }
	i := 0
	for i < len(s) && fits(s[i]) {
		i++
	}
	if i == len(s) {
		return s
	}
	const digits = "0123456789ABCDEF"
	b := make([]byte, 0, len(s)+16)
	for _, r := range s { // invalid UTF-8 becomes U+FFFD, as in JSON
		if r < utf8.RuneSelf && fits(byte(r)) {
			b = append(b, byte(r))
			continue
		}
		for _, c := range []byte(string(r)) {
			b = append(b, '%', digits[c>>4], digits[c&15])
		}
	}
	return string(b)
}

// body encodes the result of an expression as the body.
type body struct {
	program     *cel.EventProgram
	secrets     map[string]config.Secret
	contentType string // empty: by the type of the result
}

// encode encodes the result of the expression as the body: a string unchanged, all else as JSON.
// The expression depends on the event only, so an event for which it fails, or results in nothing,
// is rejected. An unreadable secret is a temporary error.
func (b *body) encode(ctx context.Context, e *event.Event) (*message, error) {
	secrets := make(map[string]string, len(b.secrets))
	for name, s := range b.secrets {
		value, err := s.Value()
		if err != nil {
			return nil, fmt.Errorf("secrets.%s: %w", name, err)
		}
		secrets[name] = value
	}
	out, err := evalBody(ctx, b.program, e, secrets)
	if err != nil {
		return nil, err
	}
	m := newMessage(typeJSON, out)
	if out[0] == '"' {
		var text string
		if err := json.Unmarshal(out, &text); err != nil {
			return nil, plugins.Reject(errors.New("body: the result is not text"))
		}
		m = newMessage(typeText, []byte(text))
	}
	if b.contentType != "" {
		m.header.Set("Content-Type", b.contentType)
	}
	return m, nil
}

// evalBody returns the result of the expression as JSON, which is not null.
func evalBody(ctx context.Context, program *cel.EventProgram, e *event.Event, secrets map[string]string) ([]byte, error) {
	out, err := program.Eval(ctx, e, secrets)
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		return nil, plugins.Reject(plugins.Categorize(fmt.Errorf("event %s: body: %w", e.ID, err), "the expression body failed"))
	case string(out) == "null":
		return nil, plugins.Reject(plugins.Categorize(fmt.Errorf("event %s: body: the result is null: exclude such events in the route's filter or emit", e.ID), "the result of body is null"))
	}
	return out, nil
}
