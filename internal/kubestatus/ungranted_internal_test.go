package kubestatus

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/pkg/authz"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// TestUngranted shows which Routes get the condition, on all pages: those of namespaces without a
// grant that have no conditions, or that of a former version of their spec.
func TestUngranted(t *testing.T) {
	object := func(namespace, status string) string {
		return fmt.Sprintf(`{"metadata":{"namespace":%q,"name":"web","uid":"u","resourceVersion":"7","generation":2},"spec":{},"status":%s}`, namespace, status)
	}
	condition := func(reason string, generation int) string {
		return fmt.Sprintf(`{"conditions":[{"type":"Accepted","status":"False","reason":%q,"observedGeneration":%d,"lastTransitionTime":"2026-01-01T00:00:00Z"}]}`, reason, generation)
	}
	pages := map[string]string{
		"":     `{"metadata":{"continue":"more"},"items":[` + object("granted", "{}") + "," + object("new", "{}") + "," + object("theirs", condition("Invalid", 1)) + `]}`,
		"more": `{"items":[` + object("told", condition("NotGranted", 2)) + "," + object("changed", condition("NotGranted", 1)) + `]}`,
	}
	for _, c := range []struct {
		name        string
		list, patch int
		lacks       string // a verb
		want        []string
	}{
		{"all rights", 200, 200, "", []string{"new", "changed"}},
		{"a conflict with another router", 200, 409, "", []string{"new", "changed"}},
		{"no right to list", 418, 200, "list", nil},
		{"no right to patch", 418, 200, "patch", nil},
		{"no right to list any more", 403, 200, "", nil},
		{"no right to patch any more", 200, 403, "", []string{"new"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []string
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodGet {
					w.WriteHeader(c.list)
					_, _ = io.WriteString(w, pages[r.URL.Query().Get("continue")])
					return
				}
				var body struct {
					Metadata struct{ UID, ResourceVersion string }
					Status   Status
				}
				if err := json.NewDecoder(r.Body).Decode(&body); err != nil || body.Metadata.UID != "u" || body.Metadata.ResourceVersion != "7" {
					t.Errorf("%v: %+v", err, body)
				}
				namespace := strings.Split(r.URL.Path, "/")[5]
				year := map[string]int{"new": 2001, "changed": 2026}[namespace]
				if is := body.Status.Conditions; len(is) != 1 || is[0].Reason != "NotGranted" || is[0].ObservedGeneration != 2 || is[0].LastTransitionTime.UTC().Year() != year {
					t.Errorf("%s: %+v", namespace, is)
				}
				got = append(got, namespace)
				w.WriteHeader(c.patch)
			}))
			t.Cleanup(server.Close)
			t.Cleanup(server.Client().CloseIdleConnections)
			allowed := func(_ context.Context, r authz.Right) (bool, error) { return r.Verb != c.lacks, nil }
			u := NewUngranted(&plugins.API{URL: server.URL, Client: server.Client()}, allowed, slog.New(slog.DiscardHandler), func() time.Time { return time.Unix(1e9, 0) })
			if err := u.pass(t.Context(), func(namespace string) bool { return namespace == "granted" }); err != nil || !slices.Equal(got, c.want) {
				t.Errorf("got %v %v, want %v", got, err, c.want)
			}
		})
	}
}
