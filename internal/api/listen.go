package api

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/deltarouter/deltarouter/internal/fileerr"
)

// UnixPrefix precedes the path of a socket in an address.
const UnixPrefix = "unix:"

// Listen listens on host:port or unix:/path. A socket is accessible to its owner only, from its
// first moment: Listen makes it in a folder with mode 0700 and then moves it. It replaces a socket
// on which no process listens.
func Listen(ctx context.Context, addr string) (net.Listener, error) {
	var lc net.ListenConfig
	path, ok := strings.CutPrefix(addr, UnixPrefix)
	if !ok {
		listener, err := lc.Listen(ctx, "tcp", addr)
		return listener, refusal(err)
	}
	if err := vacant(ctx, path); err != nil {
		return nil, err
	}
	// mode 0700; the name is short because the length of a socket's path is limited
	private, err := os.MkdirTemp(filepath.Dir(path), ".")
	if err != nil {
		return nil, fmt.Errorf("the socket %s cannot be created: %w", path, fileerr.Cause(err))
	}
	defer func() { _ = os.Remove(private) }() // empty by then
	made := filepath.Join(private, "s")
	listener, err := lc.Listen(ctx, "unix", made)
	if err != nil {
		return nil, fmt.Errorf("the socket %s cannot be created: %w", path, fileerr.Cause(err))
	}
	listener.(*net.UnixListener).SetUnlinkOnClose(false)
	if err := errors.Join(os.Chmod(made, 0o600), os.Rename(made, path)); err != nil {
		_ = errors.Join(listener.Close(), os.Remove(made)) // another error is returned
		return nil, fmt.Errorf("the socket %s cannot be created: %w", path, fileerr.Cause(err))
	}
	return &socket{listener, path}, nil
}

// refusal words the error of listening on host:port, which the message around it names.
func refusal(err error) error {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return errors.New("another process listens there")
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return errors.New("this machine does not have it")
	case errors.Is(err, fs.ErrPermission):
		return errors.New("this user has no permission, as for ports below 1024")
	}
	return err
}

// vacant returns an error unless the path is free or belongs to an abandoned socket.
func vacant(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fileerr.Explain(err)
	case info.Mode()&fs.ModeSocket == 0:
		return fmt.Errorf("%s is there and is no socket: remove it", path)
	}
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", path)
	if err != nil {
		return nil //nolint:nilerr // the socket is abandoned
	}
	return errors.Join(fmt.Errorf("%s is in use by another process", path), conn.Close())
}

// socket removes its file when it is closed.
type socket struct {
	net.Listener

	path string
}

// Addr returns the path of the socket for clients, which differs from the path at which it was
// made.
func (s *socket) Addr() net.Addr { return &net.UnixAddr{Name: s.path, Net: "unix"} }

func (s *socket) Close() error {
	err := s.Listener.Close()
	if gone := os.Remove(s.path); gone != nil && !errors.Is(gone, fs.ErrNotExist) {
		err = errors.Join(err, fileerr.Explain(gone))
	}
	return err
}
