package sandboxtest

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Request is a request to the API server, from its audit log.
type Request struct {
	Time time.Time
	// admin, limited, a ServiceAccount, or the user whom the administrator impersonates
	User      string
	UserAgent string
	Verb      string // get, list, watch, create, …
	Group     string
	Resource  string // plural
	Namespace string
	Name      string
	URI       string // with the query: resourceVersion, sendInitialEvents, limit, …
	Code      int
}

// auditEvent is the used part of an audit event.
type auditEvent struct {
	Stage                    string
	Verb                     string
	RequestURI               string
	UserAgent                string
	User, ImpersonatedUser   struct{ Username string }
	ObjectRef                struct{ APIGroup, Resource, Namespace, Name string }
	ResponseStatus           struct{ Code int }
	RequestReceivedTimestamp time.Time
}

// Requests returns the requests for resources since the start of the sandbox, across restarts of
// its API server, for which match is true (nil: all), in the order of their answers. It leaves out
// those of the sandbox itself and of this package. A watch is listed once, at its answer; any other
// request after its end, which a client may see a moment earlier: poll.
func (s *Sandbox) Requests(tb testing.TB, match func(Request) bool) []Request {
	tb.Helper()
	data, err := os.ReadFile(filepath.Join(s.dir, "audit.log"))
	if err != nil {
		tb.Fatalf("sandboxtest: %v", err)
	}
	var found []Request
	// The last line may be incomplete; then it has no newline.
	for line := range bytes.Lines(data) {
		if !bytes.HasSuffix(line, []byte("\n")) {
			break
		}
		var e auditEvent
		if err := json.Unmarshal(line, &e); err != nil {
			continue // the server was killed in the middle of a line
		}
		stage := "ResponseComplete"
		if e.Verb == "watch" {
			stage = "ResponseStarted"
		}
		if e.Stage != stage || e.UserAgent == userAgent {
			continue
		}
		if r := e.request(); match == nil || match(r) {
			found = append(found, r)
		}
	}
	return found
}

func (e auditEvent) request() Request {
	return Request{
		Time:      e.RequestReceivedTimestamp,
		User:      cmp.Or(e.ImpersonatedUser.Username, e.User.Username),
		UserAgent: e.UserAgent,
		Verb:      e.Verb,
		Group:     e.ObjectRef.APIGroup,
		Resource:  e.ObjectRef.Resource,
		Namespace: e.ObjectRef.Namespace,
		Name:      e.ObjectRef.Name,
		URI:       e.RequestURI,
		Code:      e.ResponseStatus.Code,
	}
}

// RequestCount returns the API server's own count of finished requests since its start, by verb in
// capitals (LIST, WATCH, …) and plural resource, from all clients including the sandbox. A watch
// counts when it ends; see OpenWatches and Requests.
func (s *Sandbox) RequestCount(tb testing.TB, verb, resource string) int {
	tb.Helper()
	return int(s.Metric(tb, "apiserver_request_total", map[string]string{"verb": verb, "resource": resource}))
}

// OpenWatches returns the number of open watches by plural resource. The sandbox itself has one on
// pods and one on namespaces.
func (s *Sandbox) OpenWatches(tb testing.TB, resource string) int {
	tb.Helper()
	return int(s.Metric(tb, "apiserver_longrunning_requests", map[string]string{"verb": "WATCH", "resource": resource}))
}

// Metric sums a metric of the API server over the series with the labels; 0 if there is none.
func (s *Sandbox) Metric(tb testing.TB, name string, labels map[string]string) float64 {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), faultTimeout)
	defer cancel()
	resp, err := s.get(ctx, "/metrics")
	if err != nil {
		tb.Fatalf("sandboxtest: %v", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		tb.Fatalf("sandboxtest: metrics: %s", resp.Status)
	}
	sum, err := sumMetric(resp.Body, name, labels)
	if err != nil {
		tb.Fatalf("sandboxtest: %v", err)
	}
	return sum
}

// sumMetric parses the text format: name{label="value",…} number. The values of these labels
// contain no quotes, so no full parser is needed.
func sumMetric(r io.Reader, name string, labels map[string]string) (float64, error) {
	var sum float64
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		series, ok := strings.CutPrefix(lines.Text(), name)
		if !ok || series == "" || (series[0] != '{' && series[0] != ' ') || !hasLabels(series, labels) {
			continue
		}
		fields := strings.Fields(series)
		value, err := strconv.ParseFloat(fields[len(fields)-1], 64)
		if err != nil {
			return 0, fmt.Errorf("metric %s: %w", name, err)
		}
		sum += value
	}
	return sum, lines.Err()
}

func hasLabels(series string, labels map[string]string) bool {
	for k, v := range labels {
		pair := k + "=" + strconv.Quote(v)
		if !strings.Contains(series, "{"+pair) && !strings.Contains(series, ","+pair) {
			return false
		}
	}
	return true
}
