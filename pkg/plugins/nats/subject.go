package nats

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/deltarouter/deltarouter/pkg/event"
)

// subject is a parsed template: a list of tokens, each a text or a part of the event.
type subject []token

type token struct {
	text string                    // the token, if part is nil
	part func(*event.Event) string // returns a value, which is encoded as one token
}

// parts are the placeholders.
func parts() map[string]func(*event.Event) string {
	of := func(f func(*event.Delta) string) func(*event.Event) string {
		return func(e *event.Event) string {
			if e.Of == nil {
				return ""
			}
			return f(e.Of)
		}
	}
	return map[string]func(*event.Event) string{
		"cluster":   of(func(d *event.Delta) string { return d.Object().Resource().Cluster }),
		"source":    of(func(d *event.Delta) string { return d.Source }),
		"kind":      of(func(d *event.Delta) string { return d.Object().Resource().Kind }),
		"namespace": of(func(d *event.Delta) string { return d.Key().Namespace }),
		"name":      of(func(d *event.Delta) string { return d.Key().Name }),
		"op":        of(func(d *event.Delta) string { return d.Op.String() }),
		"route":     func(e *event.Event) string { return e.Route },
		"type":      func(e *event.Event) string { return e.Type },
	}
}

// parseSubject parses a template. A placeholder must be a whole token: next to other text, two
// objects could share a subject.
func parseSubject(template string) (subject, error) {
	known := parts()
	var s subject
	for text := range strings.SplitSeq(template, ".") {
		name, isPart := strings.CutPrefix(text, "{")
		name, ends := strings.CutSuffix(name, "}")
		part := known[name]
		switch {
		case text == "":
			return nil, errors.New("has an empty token: write something between the dots")
		case isPart && ends && part != nil:
			s = append(s, token{part: part})
		case isPart && ends && !strings.ContainsAny(name, "{}"):
			return nil, fmt.Errorf("there is no {%s}; there are: %s", name, strings.Join(slices.Sorted(maps.Keys(known)), ", "))
		case strings.ContainsAny(text, "{}"):
			return nil, fmt.Errorf("%s: a placeholder must be a token by itself, with dots around it", text)
		case strings.ContainsAny(text, "*> \t\r\n") || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' }):
			return nil, errors.New("must not have wildcards (* and >), blanks or other than ASCII characters")
		default:
			s = append(s, token{text: text})
		}
	}
	if strings.HasPrefix(s[0].text, "$") || s[0].text == "_INBOX" {
		return nil, errors.New("must not begin with $ or _INBOX: those are the server's own")
	}
	return s, nil
}

// of returns the subject of an event.
func (s subject) of(e *event.Event) string {
	b := make([]byte, 0, 64)
	for i, t := range s {
		if i > 0 {
			b = append(b, '.')
		}
		if t.part == nil {
			b = append(b, t.text...)
		} else {
			b = appendToken(b, t.part(e))
		}
	}
	return string(b)
}

// all returns the subject, with wildcards, of all events of the template.
func (s subject) all() string {
	tokens := make([]string, len(s))
	for i, t := range s {
		if tokens[i] = t.text; t.part != nil {
			tokens[i] = "*"
		}
	}
	return strings.Join(tokens, ".")
}

const (
	// maxToken is the maximum length of a value that is written literally, in bytes. Most names in
	// Kubernetes are shorter.
	maxToken = 253
	// maxSubject is the maximum length of a subject. By default a server closes the connection
	// after a protocol line of more than 4,096 bytes. The line also contains the subject for the
	// acknowledgement and two lengths.
	maxSubject = 4096 - 256
)

// appendToken appends a value as one token. Different values have different tokens:
//
//   - letters, digits, -, _ and ~ are literal;
//   - other bytes are written as %2E;
//   - an empty value is _;
//   - a value that is too long is its hash, after a character that no other token begins with.
func appendToken(b []byte, value string) []byte {
	switch {
	case value == "":
		return append(b, '_')
	case value == "_":
		return append(b, "%5F"...)
	case len(value) > maxToken:
		sum := sha256.Sum256([]byte(value))
		return hex.AppendEncode(append(b, "=sha256="...), sum[:])
	}
	return appendEscaped(b, value, func(c byte) bool {
		return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_' || c == '~'
	})
}

// appendHeader appends the value of an attribute in the encoding of the HTTP and NATS bindings of
// CloudEvents.
func appendHeader(b []byte, value string) []byte {
	return appendEscaped(b, value, func(c byte) bool { return '!' <= c && c <= '~' && c != '"' && c != '%' })
}

func appendEscaped(b []byte, value string, plain func(byte) bool) []byte {
	const hex = "0123456789ABCDEF"
	for i := range len(value) {
		if c := value[i]; plain(c) {
			b = append(b, c)
		} else {
			b = append(b, '%', hex[c>>4], hex[c&15])
		}
	}
	return b
}
