package kubernetes

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltarouter/deltarouter/pkg/event"
)

// maxManager is the API server's bound on the name of a field manager, in bytes.
const maxManager = 128

// managerOf returns the field manager of a route: the configured name, and that of the route. An
// apply removes the fields that its manager applied before and does not apply now, so two routes
// with one manager would remove the fields of each other. A longer name ends with a hash.
func (a *api) managerOf(route string) string {
	if route == "" {
		return a.manager
	}
	name := a.manager + ":" + route
	if len(name) <= maxManager {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	suffix := "~" + hex.EncodeToString(sum[:8])
	return strings.ToValidUTF8(name[:maxManager-len(suffix)], "") + suffix
}

// apply sends an apply. Former versions applied with one manager for all routes: the route takes
// the fields over that this manager owns, and then releases the rest of them, so that the API
// server removes what no manager applies any more.
func (s *sink) apply(ctx context.Context, e *event.Event, op *operation, id string) error {
	answer, err := s.api.send(ctx, e, op, id)
	if s.api.managerOf(e.Route) == s.api.manager {
		return err
	}
	if err != nil && s.isFormer(op, err) {
		forced := *op
		forced.force = true
		answer, err = s.api.send(ctx, e, &forced, id)
	}
	if err != nil || !bytes.Contains(answer, encode(s.api.manager)) {
		return err
	}
	return s.release(ctx, op, answer)
}

// isFormer reports whether an apply is in conflict with the common manager of former versions only,
// about fields that it applied: fields that it patched were a conflict then too.
func (s *sink) isFormer(op *operation, err error) bool {
	status := statusOf(err)
	former := fmt.Sprintf("conflict with %q", s.api.manager) // of a patch, the version of the API follows
	if op.subresource != "" {
		former += fmt.Sprintf(" with subresource %q", op.subresource)
	}
	return status != nil && isOwned(status) && !slices.ContainsFunc(status.Details.Causes, func(c metav1.StatusCause) bool { return c.Message != former })
}

// release ends the ownership of the common manager over the fields of an object that it applied, by
// an apply without fields. The answer to the apply of the route has the object.
func (s *sink) release(ctx context.Context, op *operation, answer []byte) error {
	var object metav1.PartialObjectMetadata
	if json.Unmarshal(answer, &object) != nil || !slices.ContainsFunc(object.ManagedFields, func(f metav1.ManagedFieldsEntry) bool {
		return f.Manager == s.api.manager && f.Operation == metav1.ManagedFieldsOperationApply && f.Subresource == op.subresource
	}) {
		return nil
	}
	nothing := *op
	nothing.body = encode(map[string]any{
		"apiVersion": schema.GroupVersion{Group: op.target.group, Version: op.target.version}.String(), "kind": op.target.kind,
		// with the uid, no object is created in the place of a deleted one
		"metadata": map[string]any{"name": object.Name, "namespace": object.Namespace, "uid": object.UID},
	})
	_, err := s.api.send(ctx, &event.Event{}, &nothing, "")
	if status := statusOf(err); status != nil && status.Code < http.StatusInternalServerError && status.Code != http.StatusTooManyRequests {
		s.log.WarnContext(ctx, "the fields of an object that a former version applied are not released: no route removes them",
			slog.String("manager", s.api.manager), slog.String("operation", op.String()), slog.String("err", describe(op, status)))
		return nil
	}
	return err
}
