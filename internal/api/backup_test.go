package api_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/internal/api"
	"github.com/deltarouter/deltarouter/test/must"
)

// copied is the copy of a state file.
type copied struct {
	io.Reader

	closed chan struct{}
}

func (c *copied) Close() error { close(c.closed); return nil }

// serveBackup serves backups and returns a client.
func serveBackup(t *testing.T, backup func(context.Context) (api.Backup, error)) (*api.Client, *api.Server) {
	t.Helper()
	s := api.NewControl(api.ControlConfig{Addr: "127.0.0.1:0", Log: slog.New(slog.DiscardHandler), Backup: backup})
	must.Succeed(t, s.Start(t.Context()))
	t.Cleanup(func() { must.Report(t, s.Close(context.WithoutCancel(t.Context()))) })
	return api.NewClient(s.Addr()), s
}

// TestBackup: the client gets all bytes, and the copy is closed.
func TestBackup(t *testing.T) {
	text := strings.Repeat("state ", 1<<18)
	at := time.Unix(1_800_000_000, 0)
	source := &copied{strings.NewReader(text), make(chan struct{})}
	client, _ := serveBackup(t, func(context.Context) (api.Backup, error) {
		return api.Backup{ReadCloser: source, Size: int64(len(text)), Written: at}, nil
	})
	var got bytes.Buffer
	written, err := client.Backup(t.Context(), &got)
	if err != nil || got.String() != text || !written.Equal(at) {
		t.Errorf("%d bytes of %v, %v", got.Len(), written, err)
	}
	<-source.closed
}

// TestBackupRefused: a router without a state, a failed copy and a busy router are errors that say
// so.
func TestBackupRefused(t *testing.T) {
	for name, c := range map[string]struct {
		backup func(context.Context) (api.Backup, error)
		want   string
		status int
	}{
		"no state": {nil, api.ErrNoState.Error(), http.StatusConflict},
		"busy":     {func(context.Context) (api.Backup, error) { return api.Backup{}, fmt.Errorf("%w: wait", api.ErrBusy) }, "busy: wait", http.StatusConflict},
		"failed":   {func(context.Context) (api.Backup, error) { return api.Backup{}, errors.New("no room") }, "no room", http.StatusInternalServerError},
	} {
		client, server := serveBackup(t, c.backup)
		_, err := client.Backup(t.Context(), io.Discard)
		must.Fail(t, err, c.want)
		response, err := http.Post("http://"+server.Addr()+"/api/v1/state/backup", "application/json", strings.NewReader("{}"))
		must.Succeed(t, err)
		must.Succeed(t, response.Body.Close())
		if response.StatusCode != c.status {
			t.Errorf("%s: %s", name, response.Status)
		}
	}
}

// TestBackupEnds: the server's end ends a copy that is being made.
func TestBackupEnds(t *testing.T) {
	begun := make(chan struct{})
	client, server := serveBackup(t, func(ctx context.Context) (api.Backup, error) {
		close(begun)
		<-ctx.Done()
		return api.Backup{}, ctx.Err()
	})
	answered := make(chan error, 1)
	go func() {
		_, err := client.Backup(context.WithoutCancel(t.Context()), io.Discard)
		answered <- err
	}()
	<-begun
	must.Succeed(t, server.Close(context.WithoutCancel(t.Context())))
	if err := <-answered; err == nil {
		t.Error("an unfinished backup has no error")
	}
}
