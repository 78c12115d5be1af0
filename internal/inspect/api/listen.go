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
)

// unixPrefix stands before the path of a socket.
const unixPrefix = "unix:"

// listen listens on host:port or unix:/path. A socket is open to its owner only from the first
// moment: it is made in a folder that only the owner may enter, and moved from there. It replaces a
// socket that no process listens on any more.
func listen(ctx context.Context, addr string) (net.Listener, error) {
	var lc net.ListenConfig
	path, ok := strings.CutPrefix(addr, unixPrefix)
	if !ok {
		return lc.Listen(ctx, "tcp", addr)
	}
	if err := vacant(ctx, path); err != nil {
		return nil, err
	}
	// mode 0700; a short name, since the length of a socket's path is limited
	private, err := os.MkdirTemp(filepath.Dir(path), ".")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.Remove(private) }() // it is empty by then
	made := filepath.Join(private, "s")
	listener, err := lc.Listen(ctx, "unix", made)
	if err != nil {
		return nil, err
	}
	listener.(*net.UnixListener).SetUnlinkOnClose(false)
	if err := errors.Join(os.Chmod(made, 0o600), os.Rename(made, path)); err != nil {
		return nil, errors.Join(err, listener.Close(), os.Remove(made))
	}
	return &socket{listener, path}, nil
}

// vacant makes sure that the path is free, or that of a socket that was left behind.
func vacant(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode()&fs.ModeSocket == 0:
		return fmt.Errorf("%s is there and is no socket: remove it", path)
	}
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", path)
	if err != nil {
		return nil //nolint:nilerr // nobody listens
	}
	return errors.Join(fmt.Errorf("%s is in use by another process", path), conn.Close())
}

// socket removes its file when it is closed.
type socket struct {
	net.Listener

	path string
}

// Addr returns the path at which clients find the socket, which is not the one at which it was
// made.
func (s *socket) Addr() net.Addr { return &net.UnixAddr{Name: s.path, Net: "unix"} }

func (s *socket) Close() error {
	err := s.Listener.Close()
	if gone := os.Remove(s.path); gone != nil && !errors.Is(gone, fs.ErrNotExist) {
		err = errors.Join(err, gone)
	}
	return err
}
