package cases

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/deltarouter/deltarouter/pkg/config"
)

// answer is a configured response to requests of handlers.
type answer struct {
	Node config.Node `yaml:",self"`
	// absent: any
	Method string `yaml:"method" enum:"GET HEAD POST PUT PATCH DELETE OPTIONS"`
	// * matches any text
	URL string `yaml:"url,required"`
	// number of requests that it answers; absent: any number
	Times   int               `yaml:"times" min:"1"`
	Status  int               `yaml:"status" default:"200" min:"200" max:"599"`
	Headers map[string]string `yaml:"headers"`
	Body    string            `yaml:"body"`
	JSON    config.Node       `yaml:"json"`  // the body in JSON, instead of Body
	Fails   bool              `yaml:"fails"` // requests fail without a response

	json []byte // of JSON
	url  *regexp.Regexp
}

// Validate implements [config.Validator].
func (a *answer) Validate(n config.Node) (problems config.Problems) {
	keys := n.Keys()
	if slices.Contains(keys, "body") && slices.Contains(keys, "json") {
		problems = append(problems, n.At("json").Problemf("does not go with body: the body is one of them"))
	}
	for _, other := range []string{"status", "headers", "body", "json"} {
		if a.Fails && slices.Contains(keys, other) {
			problems = append(problems, n.At(other).Problemf("does not go with fails: a request that fails has no response"))
		}
	}
	if !a.JSON.IsZero() {
		var err error
		if a.json, err = a.JSON.JSON(); err != nil {
			problems = append(problems, problemsOf(a.JSON, err)...)
		}
	}
	if a.URL != "" && !strings.HasPrefix(a.URL, "http://") && !strings.HasPrefix(a.URL, "https://") {
		problems = append(problems, n.At("url").Problemf("must be a whole URL, as in https://api.example.com/*, where * is any text"))
	}
	a.url = regexp.MustCompile("^(?s:" + strings.ReplaceAll(regexp.QuoteMeta(a.URL), `\*`, ".*") + ")$")
	return problems
}

// web answers the requests of a case's handlers. The first request without an answer ends the case.
// It is safe for concurrent use.
type web struct {
	answers []*answer
	end     context.CancelCauseFunc
	none    error // for a request without an answer, which then ends nothing; nil: a case ends

	mu   sync.Mutex
	used map[*answer]int
	err  error // for the first request without an answer
}

// Answers returns a network that has the answers of all cases of a file to the requests of
// handlers. Another request fails with none.
func Answers(file string, data []byte, none error) (http.RoundTripper, config.Problems) {
	doc, problems := parseFile(file, data)
	if len(problems) > 0 {
		return nil, problems
	}
	w := &web{used: make(map[*answer]int), none: none}
	for _, t := range doc.Cases {
		w.answers = append(w.answers, t.Given.HTTP...)
	}
	return w.of(""), nil
}

// of returns the transport of one handler.
func (w *web) of(handler string) http.RoundTripper { return &browser{w, handler} }

type browser struct {
	web     *web
	handler string
}

var errFails = errors.New("the case says that the request fails")

// RoundTrip implements http.RoundTripper.
func (b *browser) RoundTrip(r *http.Request) (*http.Response, error) {
	a, err := b.web.find(b.handler, r)
	if err != nil {
		return nil, err
	}
	if a.Fails {
		return nil, errFails
	}
	body := a.Body
	if a.json != nil {
		body = string(a.json)
	}
	response := &http.Response{
		Status: fmt.Sprintf("%d %s", a.Status, http.StatusText(a.Status)), StatusCode: a.Status,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: make(http.Header), Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)), Request: r,
	}
	if a.json != nil {
		response.Header.Set("Content-Type", "application/json")
	}
	for name, value := range a.Headers {
		response.Header.Set(name, value)
	}
	return response, nil
}

// find returns the first answer that matches a request of a handler and is not used up.
func (w *web) find(handler string, r *http.Request) (*answer, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, a := range w.answers {
		if (a.Method == "" || a.Method == r.Method) && a.url.MatchString(r.URL.String()) && (a.Times == 0 || w.used[a] < a.Times) {
			w.used[a]++
			return a, nil
		}
	}
	if w.none != nil {
		return nil, w.none
	}
	err := fmt.Errorf("handler %q sends a request that has no response in the case: %s %q: add it to given.http, as {method: %s, url: URL, status: 200}",
		handler, r.Method, r.URL, r.Method)
	if w.err == nil {
		w.err = err
		w.end(err)
	}
	return nil, err
}

// unanswered returns the error of the first request without an answer, or nil.
func (w *web) unanswered() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}
