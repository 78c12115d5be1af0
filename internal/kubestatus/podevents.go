package kubestatus

import (
	"context"
	"os"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"

	"github.com/deltarouter/deltarouter/internal/printable"
)

// The reasons of Events.
const (
	ConfigRejected = "ConfigRejected"
	RoutePaused    = "RoutePaused"
	DeadLetters    = "DeadLetters"
	SourceRefused  = "SourceRefused"
)

const (
	// repeatAfter is the time after which a condition that still holds is reported again. An API
	// server keeps Events for an hour, unless it is configured otherwise.
	repeatAfter = 30 * time.Minute
	// maxMessage bounds the message of an Event, in bytes. It is the bound of the API server.
	maxEventMessage = 1024
	// burst Events are created at once; later ones have an interval of refill, on average.
	burst  = 25
	refill = 5 * time.Minute
)

// Pod names the pod of the router.
type Pod struct{ Namespace, Name, UID string }

// PodFromEnv returns the pod that POD_NAMESPACE, POD_NAME and POD_UID name. ok is false without the
// first two. kubectl describe finds Events by the uid too, so they are missing there without it.
func PodFromEnv() (pod Pod, ok bool) {
	pod = Pod{os.Getenv("POD_NAMESPACE"), os.Getenv("POD_NAME"), os.Getenv("POD_UID")}
	return pod, pod.Namespace != "" && pod.Name != ""
}

// Condition is something that an operator should know. It contains no content of objects.
type Condition struct {
	Reason  string // CamelCase, as ConfigRejected
	Subject string // the route or source; empty: the router
	Message string // a new message is reported as a new condition
	// Count counts things that happened, such as dead letters: the condition is reported when it
	// has risen. 0: the condition is a state, and is reported when it begins.
	Count float64
}

// key identifies a condition.
type key struct{ reason, subject string }

// report is the last report of a condition.
type report struct {
	Condition

	at time.Time
}

// Reporter reports conditions of the router that need an operator as Kubernetes Events of its pod,
// which kubectl describe pod shows. The router collects its conditions every few seconds and passes
// them to the Reporter, which creates an Event for each one that is new. It must not be used
// concurrently.
//
// The Events are of core/v1
// (https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/event-v1). The recorder of
// client-go is not used: it creates Events in the background without a way to wait for them, so an
// Event about a rejected start would be lost, and it adds the OpenAPI packages to the binary. The
// Reporter needs no more than the verb create.
type Reporter struct {
	pod    Pod
	create func(ctx context.Context, e *corev1.Event) error
	now    func() time.Time
	limit  *rate.Limiter
	last   map[key]report
}

// Observe records counts without a report, so that only later rises are reported.
func (r *Reporter) Observe(conditions []Condition) {
	for _, c := range conditions {
		if c.Count > 0 {
			r.last[key{c.Reason, c.Subject}] = report{c, r.now()}
		}
	}
}

// Report creates an Event for each condition that is new, and for one that still holds after half
// an hour. conditions are all that hold now, each reason and subject once. Events beyond the rate
// limit (25, and one each five minutes) are created by a later call. The error is the first of the
// API server; a later call tries again.
func (r *Reporter) Report(ctx context.Context, conditions []Condition) error {
	hold := make(map[key]bool, len(conditions))
	var failed error
	for _, c := range conditions {
		k := key{c.Reason, c.Subject}
		hold[k] = true
		if !r.isNew(c) || failed != nil || !r.limit.AllowN(r.now(), 1) {
			continue
		}
		if failed = r.create(ctx, r.event(c)); failed == nil {
			r.last[k] = report{c, r.now()}
		}
	}
	for k := range r.last {
		if !hold[k] {
			delete(r.last, k)
		}
	}
	return failed
}

// isNew reports whether a condition is to be reported.
func (r *Reporter) isNew(c Condition) bool {
	last, ok := r.last[key{c.Reason, c.Subject}]
	if c.Count > 0 {
		return !ok || c.Count > last.Count
	}
	return !ok || c.Message != last.Message || r.now().Sub(last.at) >= repeatAfter
}

// event returns the Event of a condition.
func (r *Reporter) event(c Condition) *corev1.Event {
	return newEvent(r.pod, c.Reason, printable.Text(c.Message, maxEventMessage), r.now())
}
