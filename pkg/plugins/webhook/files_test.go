package webhook_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/test/must"
)

// A URL in a file is read again when the file changes. An invalid URL is a temporary error.
func TestURLFile(t *testing.T) {
	s := server(t, func(http.ResponseWriter, *http.Request) {})
	file := filepath.Join(t.TempDir(), "url")
	sink := open(t, fmt.Sprintf("url: {file: %q}", file))
	for i, tt := range []struct {
		content string
		ok      bool
	}{{"", false}, {"no url", false}, {s.URL + "\n", true}} {
		if tt.content != "" {
			must.Succeed(t, os.WriteFile(file, []byte(tt.content), 0o600))
		}
		errs := sink.Write(t.Context(), []event.Event{sample()})
		if ok := errs == nil; ok != tt.ok || !ok && plugins.ClassOf(errs[0]) == plugins.Rejected {
			t.Errorf("%d: got %v", i, errs)
		}
	}
}

// TestHeaderFile: a header in a file is read again when the file changes. An invalid header is a
// fault of the file, not of the event, and errors do not show it.
func TestHeaderFile(t *testing.T) {
	var got []string
	s := server(t, func(_ http.ResponseWriter, r *http.Request) { got = append(got, r.Header.Get("Authorization")) })
	file := filepath.Join(t.TempDir(), "token")
	sink := open(t, fmt.Sprintf("{url: %q, headers: {Authorization: {file: %q}}}", s.URL, file))
	for i, content := range []string{"", "Bearer 1\n", "s3cret\nX-More: s3cret", "", "Bearer 2"} {
		if content == "" {
			_ = os.Remove(file)
		} else {
			write(t, file, []byte(content))
		}
		errs := sink.Write(t.Context(), []event.Event{sample()})
		if ok := strings.HasPrefix(content, "Bearer"); ok != (errs == nil) || !ok && plugins.ClassOf(errs[0]) == plugins.Rejected {
			t.Errorf("%d: %v", i, errs)
		} else if !ok && (strings.Contains(errs[0].Error(), "s3cret") || !strings.Contains(errs[0].Error(), "header")) {
			t.Errorf("%d: %v", i, errs)
		}
	}
	if strings.Join(got, ", ") != "Bearer 1, Bearer 2" {
		t.Errorf("it arrived with %q", got)
	}
}
