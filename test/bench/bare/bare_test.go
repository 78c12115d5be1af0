package bare_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/test/bench/bare"
	"github.com/deltarouter/deltarouter/test/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// TestLoop: the loop posts the changes after the initial objects, and ends with the watch or with
// an error in it.
func TestLoop(t *testing.T) {
	const (
		initial  = `{"type":"ADDED","object":"a"}` + "\n"
		synced   = `{"type":"BOOKMARK","object":{"metadata":{"annotations":{"k8s.io/initial-events-end":"true"}}}}` + "\n"
		bookmark = `{"type":"BOOKMARK","object":{}}` + "\n"
		change   = `{"type":"MODIFIED","object":"b"}` + "\n"
	)
	for _, tt := range []struct {
		name, watch string
		syncs       int
		posts       []string
		err         string
	}{
		{"no initial objects", synced, 1, nil, "unexpected EOF"},
		{"changes", initial + synced + bookmark + change + change, 1, []string{`"b"`, `"b"`}, "unexpected EOF"},
		{"an error", initial + synced + `{"type":"ERROR","object":{"code":410}}` + "\n" + change, 1, nil, "410"},
		{"it ends early", initial, 0, nil, "unexpected EOF"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var posts []string
			mux := http.NewServeMux()
			mux.HandleFunc("GET /things", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, tt.watch) })
			mux.HandleFunc("POST /hook", func(_ http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				posts = append(posts, string(body))
			})
			server := httptest.NewServer(mux)
			defer server.Close()
			loop := bare.Loop{Client: server.Client(), URL: server.URL + "/things", Receiver: server.URL + "/hook", Body: func(line []byte) (any, error) {
				var event struct{ Object string }
				return &event.Object, json.Unmarshal(line, &event)
			}}
			syncs, posted := 0, 0
			err := loop.Run(func() { syncs++ }, func() { posted++ })
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("got error %v, want %q", err, tt.err)
			}
			if syncs != tt.syncs || posted != len(tt.posts) || !slices.Equal(posts, tt.posts) {
				t.Errorf("got %d syncs and the posts %q, want %d and %q", syncs, posts, tt.syncs, tt.posts)
			}
		})
	}
}
