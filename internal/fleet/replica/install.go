package replica

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltarouter/deltarouter/internal/checkpoint"
)

const (
	// snapshotMark follows the path of the state file in the name of a snapshot that is read.
	snapshotMark = ".snapshot"
	// spareRoom is left on the disk.
	spareRoom = 16 << 20
	// chunkTimeout limits the wait for the next part of a snapshot.
	chunkTimeout = 30 * time.Second
)

// errUnusable is wrapped by the error of a snapshot that another attempt does not make better.
var errUnusable = errors.New("the snapshot cannot be used")

// install replaces the state file by a snapshot.
func (f *Follower) install(ctx context.Context, p *pointer) error {
	begun := time.Now()
	path := f.cfg.Path + snapshotMark
	err := f.download(ctx, p, path)
	if err == nil {
		err = f.cfg.DB.Replace(path, p.At)
		if errors.Is(err, checkpoint.ErrCorrupt) || errors.Is(err, checkpoint.ErrFrameDamaged) {
			err = fmt.Errorf("%w: %w", errUnusable, err)
		}
	}
	if err != nil {
		return fmt.Errorf("snapshot %s: %w", p.Name, errors.Join(err, remove(path)))
	}
	f.cfg.Figures.Installed.Add(1)
	f.cfg.Log.Info("fleet: the state file was replaced by a snapshot of the leader's", "file", f.cfg.Path,
		"position", f.cfg.DB.Position().String(), "bytes", p.Size, "took", time.Since(begun))
	return nil
}

func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// token is the id of the content of an object, a token of a subject.
var token = regexp.MustCompile(`^[A-Za-z0-9]+$`)

// download reads a snapshot into a file. It takes no more bytes than the pointer says, and only
// those of the pointer's digest.
func (f *Follower) download(ctx context.Context, p *pointer, path string) (err error) {
	if room, known := f.cfg.DB.Room(); known && p.Size+spareRoom > uint64(max(room, 0)) { //nolint:gosec // not negative
		return fmt.Errorf("%w: it has %d bytes, and %d are free", checkpoint.ErrFull, p.Size, room)
	}
	// A file of an attempt before is never continued: its content was not checked.
	if err := remove(path); err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	store, err := f.cfg.Conn.JS.ObjectStore(ctx, f.cfg.Conn.Names.Snapshots())
	if err != nil {
		return err
	}
	// The description may be of anybody who can write to the bucket, so the pointer decides: it is
	// in the lead record.
	info, err := store.GetInfo(ctx, p.Name)
	if errors.Is(err, jetstream.ErrObjectNotFound) {
		return fmt.Errorf("%w: %w", errUnusable, err)
	}
	if err != nil {
		return err
	}
	if info.Size != p.Size {
		return fmt.Errorf("%w: it has %d bytes in place of %d", errUnusable, info.Size, p.Size)
	}
	sum := sha256.New()
	if info.Bucket != f.cfg.Conn.Names.Snapshots() || !token.MatchString(info.NUID) {
		return fmt.Errorf("%w: it is stored elsewhere", errUnusable)
	}
	if err := f.chunks(ctx, info, io.MultiWriter(file, sum)); err != nil {
		return err
	}
	if digest := jetstream.GetObjectDigestValue(sum); digest != p.Digest {
		return fmt.Errorf("%w: its digest is %s in place of %s: it was damaged or replaced", errUnusable, digest, p.Digest)
	}
	return nil
}

// chunks reads the content of an object. The library's reader cannot be interrupted.
func (f *Follower) chunks(ctx context.Context, info *jetstream.ObjectInfo, to io.Writer) error {
	r, err := f.cfg.Conn.ReadStream(ctx, "OBJ_"+info.Bucket, "$O."+info.Bucket+".C."+info.NUID, 0)
	if err != nil {
		return err
	}
	defer r.Stop()
	for left := info.Size; left > 0; {
		ctx, cancel := context.WithTimeout(ctx, chunkTimeout)
		m, _, err := r.Next(ctx)
		cancel()
		if err != nil {
			return fmt.Errorf("%d of %d bytes are missing: %w", left, info.Size, err)
		}
		n := uint64(len(m.Data()))
		if n > left || n == 0 {
			return fmt.Errorf("%w: it has more than %d bytes", errUnusable, info.Size)
		}
		if _, err := to.Write(m.Data()); err != nil {
			return err
		}
		left -= n
	}
	return nil
}
