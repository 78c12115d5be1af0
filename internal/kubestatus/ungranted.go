package kubestatus

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/deltarouter/deltarouter/internal/crds"
	"github.com/deltarouter/deltarouter/internal/kubehttp"
	"github.com/deltarouter/deltarouter/pkg/authz"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

const (
	// ungrantedInterval is the time between two searches.
	ungrantedInterval = time.Minute
	// ungrantedPage is the number of objects per request: an answer has at most 1 MiB.
	ungrantedPage = 20
	// reasonNotGranted is the reason of the condition Accepted.
	reasonNotGranted = "NotGranted"
)

// Ungranted writes a status to the Routes in namespaces without a grant, whose authors learn
// nothing otherwise. The router does not watch these: they are listed each minute. That needs the
// rights to list routes in all namespaces and to patch their status, without which Ungranted does
// nothing. It leaves an object alone that has other conditions: another router may grant
// its namespace.
type Ungranted struct {
	api     *plugins.API
	allowed func(context.Context, authz.Right) (bool, error)
	log     *slog.Logger
	now     func() time.Time
	failure string // the last one that was logged
}

// NewUngranted returns an Ungranted. allowed reports whether the router has a right.
func NewUngranted(api *plugins.API, allowed func(context.Context, authz.Right) (bool, error), log *slog.Logger, now func() time.Time) *Ungranted {
	return &Ungranted{api: api, allowed: allowed, log: log, now: now}
}

// Run searches until ctx is done. granted reports whether the Routes of a namespace are used; nil
// instead of it: there is nothing to search now.
func (u *Ungranted) Run(ctx context.Context, granted func() func(namespace string) bool) {
	tick := time.NewTicker(ungrantedInterval)
	defer tick.Stop()
	for {
		if has := granted(); has != nil {
			err := u.pass(ctx, has)
			switch {
			case err == nil:
				u.failure = ""
			case ctx.Err() == nil && err.Error() != u.failure:
				u.failure = err.Error()
				u.log.Warn("routes in namespaces without a grant get no status; it is tried again", "err", err)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// page is a part of a list of objects.
type page struct {
	Metadata struct{ Continue string }
	Items    []struct {
		Metadata metav1.ObjectMeta
		Status   Status
	}
}

// pass lists all Routes, and writes the missing statuses, if the router may do both. No request is
// made that the API server would refuse.
func (u *Ungranted) pass(ctx context.Context, granted func(namespace string) bool) error {
	for _, r := range []authz.Right{{Verb: "list", Group: group, Resource: Route.plural()}, {Verb: "patch", Group: group, Resource: Route.plural() + "/status"}} {
		if ok, err := u.allowed(ctx, r); err != nil || !ok {
			return err
		}
	}
	for next := ""; ; {
		place, err := url.JoinPath(u.api.URL, "apis", group, crds.Version, Route.plural())
		if err != nil {
			return err
		}
		var found page
		query := url.Values{"limit": {fmt.Sprint(ungrantedPage)}, "continue": {next}}
		code, _, err := kubehttp.Exchange(ctx, u.api.Client, http.MethodGet, place+"?"+query.Encode(), nil, &found)
		switch {
		case err != nil:
			return err
		case code == http.StatusForbidden || code == http.StatusNotFound:
			return nil // the right is optional
		case code != http.StatusOK:
			return fmt.Errorf("the API server answers %d %s", code, http.StatusText(code))
		}
		for i := range found.Items {
			o := &found.Items[i]
			if granted(o.Metadata.Namespace) || !u.missing(&o.Metadata, &o.Status) {
				continue
			}
			if again, err := u.write(ctx, &o.Metadata, &o.Status); err != nil || !again {
				return err
			}
		}
		if next = found.Metadata.Continue; next == "" {
			return nil
		}
	}
}

// missing reports whether an object has no conditions, or one of Ungranted about a former version.
func (u *Ungranted) missing(meta *metav1.ObjectMeta, status *Status) bool {
	if len(status.Conditions) == 0 {
		return true
	}
	was := status.condition(accepted)
	return len(status.Conditions) == 1 && was.Reason == reasonNotGranted && was.ObservedGeneration != meta.Generation
}

// write writes the status of an object. The resourceVersion is a precondition: another router may
// have written one since. again is false if the right is missing.
func (u *Ungranted) write(ctx context.Context, meta *metav1.ObjectMeta, former *Status) (again bool, err error) {
	at := metav1.NewTime(u.now().Truncate(time.Second))
	if was := former.condition(accepted); was.Reason == reasonNotGranted {
		at = was.LastTransitionTime
	}
	status := Status{ObservedGeneration: meta.Generation, Conditions: []metav1.Condition{{
		Type: accepted, Status: metav1.ConditionFalse, Reason: reasonNotGranted, ObservedGeneration: meta.Generation, LastTransitionTime: at,
		Message: "The router does not use the Routes of this namespace: ask those who run it to add the namespace to customResources.routes.namespaces.",
	}}}
	place, err := url.JoinPath(u.api.URL, "apis", group, crds.Version, "namespaces", meta.Namespace, Route.plural(), meta.Name, "status")
	if err != nil {
		return false, err
	}
	body := map[string]any{"metadata": map[string]any{"uid": meta.UID, "resourceVersion": meta.ResourceVersion}, "status": status}
	code, err := kubehttp.Send(ctx, u.api.Client, http.MethodPatch, place+"?fieldManager=deltarouter", body)
	return code != http.StatusForbidden, err
}
