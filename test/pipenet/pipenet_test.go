package pipenet_test

import (
	"errors"
	"io"
	"net/http"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deltarouter/deltarouter/test/leaks"
	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/pipenet"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// TestFakeClock: an answer that takes an hour of the fake clock.
func TestFakeClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, l := pipenet.Serve(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			time.Sleep(time.Hour)
			_, _ = io.WriteString(w, "late")
		}))
		transport := &http.Transport{DialContext: l.Dial}
		began := time.Now()
		resp, err := (&http.Client{Transport: transport}).Get(server.URL)
		must.Succeed(t, err)
		text, err := io.ReadAll(resp.Body)
		must.Succeed(t, err)
		must.Succeed(t, resp.Body.Close())
		if took := time.Since(began); string(text) != "late" || took != time.Hour {
			t.Errorf("%q after %v", text, took)
		}
		transport.CloseIdleConnections()
		server.Close()
		if _, err := l.Dial(t.Context(), "", ""); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("the server is closed: %v", err)
		}
	})
}
