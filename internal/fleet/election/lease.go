package election

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/deltarouter/deltarouter/internal/kubehttp"
)

// The annotations of the Lease.
const (
	// handoverTo is the member that asks the leader to hand over.
	handoverTo = "deltarouter.io/handover-to"
	// preferred is the member for which the former leader has freed the Lease.
	preferred = "deltarouter.io/preferred-holder"
)

const (
	group    = "coordination.k8s.io"
	microSec = "2006-01-02T15:04:05.000000Z07:00"
)

// The answers that have a meaning of their own.
var (
	errNotFound = errors.New("there is no such Lease")
	errConflict = errors.New("another client changed or deleted the Lease")
)

// record is the content of a Lease, as far as it matters.
type record struct {
	version     string // of the resource
	uid         string
	holder      string
	duration    time.Duration
	transitions int
	handoverTo  string
	preferred   string
}

// lease is a Lease of coordination.k8s.io/v1.
type lease struct {
	Metadata struct {
		ResourceVersion string            `json:"resourceVersion"`
		UID             string            `json:"uid"`
		Annotations     map[string]string `json:"annotations"`
	} `json:"metadata"`
	Spec struct {
		HolderIdentity       string `json:"holderIdentity"`
		LeaseDurationSeconds int    `json:"leaseDurationSeconds"`
		LeaseTransitions     int    `json:"leaseTransitions"`
	} `json:"spec"`
}

// taken is the patch by which this member takes the Lease, or renews it.
func (e *Elector) taken(now *record, at time.Time) map[string]any {
	spec := map[string]any{"renewTime": at.UTC().Format(microSec), "leaseDurationSeconds": e.cfg.seconds()}
	annotations := map[string]any{preferred: nil}
	if now.holder != e.cfg.Holder {
		spec["holderIdentity"], spec["acquireTime"], spec["leaseTransitions"] = e.cfg.Holder, spec["renewTime"], now.transitions+1
		annotations[handoverTo] = nil
	}
	return map[string]any{"metadata": map[string]any{"annotations": annotations}, "spec": spec}
}

// freed is the patch by which the leader frees the Lease, at once for a preferred member.
func freed(at time.Time, prefer string) map[string]any {
	annotations := map[string]any{handoverTo: nil, preferred: nil}
	if prefer != "" {
		annotations[preferred] = prefer
	}
	return map[string]any{
		"metadata": map[string]any{"annotations": annotations},
		"spec":     map[string]any{"holderIdentity": nil, "renewTime": at.UTC().Format(microSec), "leaseDurationSeconds": 1},
	}
}

func (e *Elector) url() string {
	place, err := url.JoinPath(e.cfg.URL, "apis", group, "v1/namespaces", e.cfg.Namespace, "leases", e.cfg.Name)
	if err != nil {
		return e.cfg.URL // the request fails with a clear message
	}
	return place
}

func (e *Elector) read(ctx context.Context) (record, error) {
	return e.send(ctx, http.MethodGet, e.url(), nil)
}

// patch changes the Lease unless it has another version.
func (e *Elector) patch(ctx context.Context, version string, change map[string]any) (record, error) {
	change["metadata"].(map[string]any)["resourceVersion"] = version
	return e.send(ctx, http.MethodPatch, e.url(), change)
}

func (e *Elector) create(ctx context.Context, at time.Time) (record, error) {
	body := e.taken(&record{transitions: -1}, at)
	delete(body["metadata"].(map[string]any), "annotations")
	body["metadata"].(map[string]any)["name"] = e.cfg.Name
	body["apiVersion"], body["kind"] = group+"/v1", "Lease"
	place, err := url.JoinPath(e.cfg.URL, "apis", group, "v1/namespaces", e.cfg.Namespace, "leases")
	if err != nil {
		return record{}, err
	}
	return e.send(ctx, http.MethodPost, place, body)
}

// refusal returns the error of an answer; nil: it is none. A Lease that is gone when it is changed
// was changed by another one.
func (e *Elector) refusal(method string, status int, message string) error {
	switch status {
	case http.StatusNotFound:
		if method == http.MethodGet {
			return errNotFound
		}
		if method == http.MethodPatch {
			return errConflict
		}
	case http.StatusConflict:
		return errConflict
	case http.StatusForbidden:
		return fmt.Errorf("the router may not %s leases in namespace %q: router rbac prints the rights it needs", verbs[method], e.cfg.Namespace)
	}
	if status >= http.StatusMultipleChoices {
		return fmt.Errorf("the API server answers %d %s: %s", status, http.StatusText(status), message)
	}
	return nil
}

// send sends a request about the Lease.
func (e *Elector) send(ctx context.Context, method, place string, body any) (record, error) {
	ctx, cancel := context.WithTimeout(ctx, e.cfg.requestTimeout())
	defer cancel()
	var found lease
	status, message, err := kubehttp.Exchange(ctx, e.cfg.Client, method, place, body, &found)
	if err == nil {
		err = e.refusal(method, status, message)
	}
	if err != nil {
		return record{}, err
	}
	return record{
		version: found.Metadata.ResourceVersion, uid: found.Metadata.UID, holder: found.Spec.HolderIdentity,
		duration:    time.Duration(found.Spec.LeaseDurationSeconds) * time.Second,
		transitions: found.Spec.LeaseTransitions, handoverTo: found.Metadata.Annotations[handoverTo],
		preferred: found.Metadata.Annotations[preferred],
	}, nil
}

var verbs = map[string]string{http.MethodGet: "get", http.MethodPost: "create", http.MethodPatch: "patch"}
