package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/deltarouter/deltarouter/internal/fileerr"
)

// ErrNoState is the answer of a router without state.dir to a request for a backup.
var ErrNoState = errors.New("the router has no state.dir, so there is no state to make a backup of")

// ErrBusy is wrapped by the error of [ControlConfig].Backup while another backup is made.
var ErrBusy = errors.New("the router is busy")

// backupPatience bounds the time in which a reader must take a part of a backup.
const backupPatience = time.Minute

// Backup is a copy of the state file.
type Backup struct {
	io.ReadCloser

	Size    int64
	Written time.Time // the last write to the state file
}

// backup answers with a copy of the state file.
func (c *control) backup(w http.ResponseWriter, r *http.Request) {
	if c.Backup == nil {
		fail(w, http.StatusConflict, ErrNoState)
		return
	}
	ctx, cancel := c.lasting(r.Context(), r.URL.Path)
	defer cancel()
	conn := http.NewResponseController(w)
	// A reader that has stopped must not delay the end.
	defer context.AfterFunc(ctx, func() { _ = conn.SetWriteDeadline(time.Now()) })()
	// Connections without deadlines return an error; it is harmless.
	_, _ = conn.SetReadDeadline(time.Time{}), conn.SetWriteDeadline(time.Time{})
	b, err := c.Backup(ctx)
	if errors.Is(err, ErrBusy) {
		fail(w, http.StatusConflict, err)
		return
	}
	if err != nil {
		fail(w, http.StatusInternalServerError, err)
		return
	}
	w.Header().Set("Content-Length", strconv.FormatInt(b.Size, 10))
	w.Header().Set("Last-Modified", b.Written.UTC().Format(http.TimeFormat))
	begin(w, http.StatusOK, "application/octet-stream")
	// The client notices a short answer by its length.
	if _, err := io.Copy(patient{ctx, w, conn}, b); err != nil {
		c.Log.Warn("a backup was not read to its end", "peer", r.RemoteAddr, "err", err)
	}
	if err := b.Close(); err != nil {
		c.Log.Warn("the temporary file of a backup cannot be removed", "err", err)
	}
}

// patient is an answer whose reader may be slow, until a context is done.
type patient struct {
	ctx  context.Context
	w    io.Writer
	conn *http.ResponseController
}

func (p patient) Write(part []byte) (int, error) {
	_ = p.conn.SetWriteDeadline(time.Now().Add(backupPatience)) // see above
	// The check is behind the deadline, which would otherwise prolong the request.
	if p.ctx.Err() != nil {
		return 0, errors.New("the router stops, or the client is gone")
	}
	return p.w.Write(part)
}

// Backup copies the state file of the router to w, and returns the time of the last write to it.
func (c *Client) Backup(ctx context.Context, w io.Writer) (written time.Time, err error) {
	unbounded := *c
	unbounded.http.Timeout = 0
	response, err := unbounded.send(ctx, http.MethodPost, "/api/v1/state/backup", struct{}{})
	if err != nil {
		return time.Time{}, err
	}
	defer func() { _ = response.Body.Close() }()
	n, err := io.Copy(w, response.Body)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = errors.New("the router closed the connection: try again, and see its log")
	}
	if err != nil {
		return time.Time{}, interrupted(fmt.Sprintf("the backup from %s ended after %d of %d bytes", c.addr, n, response.ContentLength), fileerr.Explain(err))
	}
	written, err = http.ParseTime(response.Header.Get("Last-Modified"))
	if err != nil {
		return time.Time{}, fmt.Errorf("the answer from %s has no time: is that the router's listen.api?", c.addr)
	}
	return written, nil
}
