package child

import (
	"io"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/deltarouter/deltarouter/test/must"
)

// TestSealBusy: sealing waits until another user of the file releases it.
func TestSealBusy(t *testing.T) {
	const size = 1 << 16
	var pages []byte
	var refused error
	f, err := seal("busy", func(w io.Writer) (err error) {
		of := w.(*os.File)
		if _, err = of.Write(make([]byte, size)); err != nil {
			return err
		}
		if pages, err = unix.Mmap(int(of.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
			return err
		}
		_, refused = unix.FcntlInt(of.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_WRITE)
		time.AfterFunc(20*time.Millisecond, func() {
			must.Report(t, unix.Munmap(pages))
		})
		return nil
	})
	if err != nil || refused != unix.EBUSY {
		t.Fatalf("got %v; the kernel said %v before", err, refused)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte("x"), 0); err == nil {
		t.Error("it can be written to")
	}
}
