package statefile

// window has some pages of the file that lie side by side.
type window struct {
	buf      []byte
	first, n uint64 // the pages in buf
	next     uint64 // the page behind the last one that was asked for
}

// ahead is the number of pages that are read at once if pages are asked for in the order of the
// file, as most of a file are that was written in the order of its keys.
const ahead = 8

// page returns a page without its continuation. The memory is valid until the next call of a
// method.
func (w *window) page(p *pages, id uint64) ([]byte, error) {
	sequential := id == w.next
	w.next = id + 1
	if id < w.first || id-w.first >= w.n {
		n := uint64(1)
		if sequential {
			n = min(ahead, p.meta.high-id)
		}
		err := w.read(p, id, n)
		if err != nil && n > 1 {
			err = w.read(p, id, 1) // a page behind it may be free and unreadable
		}
		if err != nil {
			return nil, err
		}
	}
	at := int64(id-w.first) * p.pageSize //nolint:gosec // below n
	return w.buf[at : at+p.pageSize : at+p.pageSize], nil
}

// pages returns a page with its continuation, n pages in all.
func (w *window) pages(p *pages, id, n uint64) ([]byte, error) {
	w.next = id + n
	if id < w.first || id-w.first+n > w.n {
		if err := w.read(p, id, n); err != nil {
			return nil, err
		}
	}
	at, size := int64(id-w.first)*p.pageSize, int64(n)*p.pageSize //nolint:gosec // the file has them
	return w.buf[at : at+size : at+size], nil
}

func (w *window) read(p *pages, id, n uint64) error {
	if size := int(n) * int(p.pageSize); len(w.buf) < size { //nolint:gosec // the file has them
		w.buf = make([]byte, size)
	}
	w.first, w.n = 0, 0
	if _, err := p.file.ReadAt(w.buf[:int(n)*int(p.pageSize)], int64(id)*p.pageSize); err != nil { //nolint:gosec // as above
		return err
	}
	w.first, w.n = id, n
	return nil
}
