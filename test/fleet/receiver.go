package fleet

import (
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/deltarouter/deltarouter/test/fleet/ledger"
	"github.com/deltarouter/deltarouter/test/routertest"
)

// ReceiverURL is the URL of the [Receiver] in webhook sinks, followed by the name of the sink. No
// server has this name: the processes reach the receiver as their HTTP proxy, with their names as
// users.
const ReceiverURL = "http://receiver.test/"

// Receiver is the server of the webhook sinks. It records the deliveries in the order of their
// arrival.
type Receiver struct {
	server *httptest.Server

	mu         sync.Mutex
	deliveries map[string][]ledger.Delivery // by route
	down       map[string]bool              // by sink
	refused    int
	invalid    []string
}

// NewReceiver starts a receiver. The caller must call Close.
func NewReceiver() *Receiver {
	r := &Receiver{deliveries: map[string][]ledger.Delivery{}, down: map[string]bool{}}
	r.server = httptest.NewServer(http.HandlerFunc(r.serve))
	return r
}

// Addr is the address of the receiver: host:port.
func (r *Receiver) Addr() string { return strings.TrimPrefix(r.server.URL, "http://") }

// Close ends the receiver.
func (r *Receiver) Close() {
	r.server.CloseClientConnections()
	r.server.Close()
}

func (r *Receiver) serve(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return // the process was killed
	}
	var e routertest.Event
	err = json.Unmarshal(body, &e)
	sink := strings.TrimPrefix(req.URL.Path, "/")
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.down[sink] {
		r.refused++
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	if err != nil {
		r.invalid = append(r.invalid, err.Error())
		return
	}
	r.deliveries[e.Route] = append(r.deliveries[e.Route], ledger.Delivery{
		ID: e.ID, Route: e.Route, UID: e.K8sUID, Op: strings.TrimPrefix(e.Type, "io.deltarouter."), Version: e.K8sResourceVersion,
		By: sender(req), At: time.Now(),
	})
}

// sender returns the name of the process that sends a request through its proxy.
func sender(req *http.Request) string {
	credentials, _ := strings.CutPrefix(req.Header.Get("Proxy-Authorization"), "Basic ")
	text, err := base64.StdEncoding.DecodeString(credentials)
	if err != nil {
		return ""
	}
	name, _, _ := strings.Cut(string(text), ":")
	return name
}

// Down makes a sink unavailable, or available again.
func (r *Receiver) Down(sink string, down bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.down[sink] = down
}

// Refused returns the number of requests to sinks while they were unavailable.
func (r *Receiver) Refused() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.refused
}

// Invalid returns the errors of requests that had no event.
func (r *Receiver) Invalid() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.invalid)
}

// Of returns the deliveries of a route since the last Clear.
func (r *Receiver) Of(route string) []ledger.Delivery {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.deliveries[route])
}

// Clear forgets all deliveries, and returns them.
func (r *Receiver) Clear() (all map[string][]ledger.Delivery) {
	r.mu.Lock()
	defer r.mu.Unlock()
	all, r.deliveries = r.deliveries, map[string][]ledger.Delivery{}
	return all
}
