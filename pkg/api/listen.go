package api

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"
)

// unixPrefix stands before the path of a socket.
const unixPrefix = "unix:"

// listen listens on host:port or unix:/path. A socket is for its owner only from the first moment, and takes the place of one that
// nobody listens on any more.
func listen(ctx context.Context, addr string) (net.Listener, error) {
	var lc net.ListenConfig
	path, ok := strings.CutPrefix(addr, unixPrefix)
	if !ok {
		return lc.Listen(ctx, "tcp", addr)
	}
	if err := vacant(ctx, path); err != nil {
		return nil, err
	}
	made := path + ".new"
	if err := os.Remove(made); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
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

func (s *socket) Close() error {
	err := s.Listener.Close()
	if gone := os.Remove(s.path); gone != nil && !errors.Is(gone, fs.ErrNotExist) {
		err = errors.Join(err, gone)
	}
	return err
}
