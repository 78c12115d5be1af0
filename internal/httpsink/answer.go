package httpsink

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"net/url"
	"slices"
	"strings"

	"github.com/deltarouter/deltarouter/internal/printable"
)

const (
	// maxSaid bounds the text that is kept of a response, in bytes.
	maxSaid = 512
	// Secrets shorter than shortSecret bytes, and parts of a URL's path shorter than shortPart, are
	// not removed, because they occur in any text.
	shortSecret = 4
	shortPart   = 8
	redacted    = "[redacted]"
)

// Excerpt returns the first 512 bytes of the body of a response, on one line and without the
// secrets (see [Secrets]). whole means that the body was read to its end; otherwise a prefix of a
// secret at the end is removed, too.
func Excerpt(body []byte, whole bool, secrets []string) string {
	if len(body) > MaxAnswer {
		body, whole = body[:MaxAnswer], false
	}
	body = Redact(body, secrets)
	if !whole {
		body = withoutPart(body, secrets)
	}
	return printable.Clean(bytes.TrimSpace(body), maxSaid)
}

// Redact returns a text without the secrets (see [Secrets]), which it replaces by [redacted].
func Redact(text []byte, secrets []string) []byte {
	for _, s := range secrets {
		text = bytes.ReplaceAll(text, []byte(s), []byte(redacted))
	}
	return text
}

// Hide returns err with a text without the secrets (see [Secrets]). What err wraps stays.
func Hide(err error, secrets []string) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	if hidden := string(Redact([]byte(text), secrets)); hidden != text {
		return &hiddenError{hidden, err}
	}
	return err
}

// hiddenError is an error whose text would repeat a secret.
type hiddenError struct {
	text string
	err  error
}

func (e *hiddenError) Error() string { return e.text }
func (e *hiddenError) Unwrap() error { return e.err }

// withoutPart removes a prefix of a secret from the end of body.
func withoutPart(body []byte, secrets []string) []byte {
	for _, s := range secrets {
		for n := min(len(s)-1, len(body)); n > 0; n-- {
			if bytes.HasSuffix(body, []byte(s[:n])) {
				body = body[:len(body)-n]
				break
			}
		}
	}
	return body
}

// Secrets lists the confidential texts of a request in the forms in which a response may repeat
// them, the longest first, because one may contain another. They are the parts of address (nil: it
// is not confidential), the values of headers, and more.
func Secrets(address *url.URL, headers []string, more ...string) []string {
	var all texts
	for _, text := range more {
		all.add(text)
	}
	if address != nil {
		all.addURL(address)
	}
	for _, value := range headers {
		all.addHeader(value)
	}
	all = slices.DeleteFunc(all, func(text string) bool { return len(text) < shortSecret })
	slices.SortFunc(all, func(a, b string) int { return len(b) - len(a) })
	return slices.Compact(all)
}

type texts []string

// add adds a text, also in the encodings of URLs and JSON.
func (all *texts) add(text string) {
	text = strings.TrimSpace(text)
	*all = append(*all, text, url.QueryEscape(text), url.PathEscape(text))
	if quoted, err := json.Marshal(text); err == nil {
		*all = append(*all, string(quoted[1:len(quoted)-1]))
	}
}

func (all *texts) addURL(u *url.URL) {
	all.add(u.RequestURI())
	all.add(u.Path)
	for part := range strings.SplitSeq(u.Path, "/") {
		if len(part) >= shortPart {
			all.add(part)
		}
	}
	for _, values := range u.Query() {
		for _, value := range values {
			all.add(value)
		}
	}
	if password, ok := u.User.Password(); ok {
		all.add(password)
	}
}

// addHeader adds a value, the words after a scheme such as Bearer, and the credentials that Basic
// encodes.
func (all *texts) addHeader(value string) {
	all.add(value)
	words := strings.Fields(value)
	if len(words) > 1 {
		words = words[1:]
	}
	for _, word := range words {
		all.add(word)
		if both, err := base64.StdEncoding.DecodeString(word); err == nil {
			_, password, _ := strings.Cut(string(both), ":")
			all.add(string(both))
			all.add(password)
		}
	}
}
