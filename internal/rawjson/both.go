package rawjson

import "sync"

const (
	// memoDepth is the depth to which objects and lists are remembered. It bounds the comparisons,
	// too: each byte is compared at most memoDepth*memoTries times.
	memoDepth = 4
	memoSize  = 64
	// memoTries is the number of remembered values that one is compared with.
	memoTries = 4
)

// CheckBoth is [Check] for two texts. Objects and lists of the second that are equal to those in
// the same place of the first are not read twice: two states of an object differ little.
func CheckBoth(first, second string) error {
	m := memos.Get().(*memo)
	defer m.release()
	m.text = first
	if err := m.check(first); err != nil {
		return err
	}
	m.known = true
	// Parts that are not read are UTF-8: they are whole values of the first text.
	return m.check(second)
}

// memo is the objects and lists of a checked text, in the order of their beginnings.
type memo struct {
	text  string
	known bool // the text is checked; false: it is being read
	marks [memoSize]mark
	n     int // number of marks
	at    int // the first mark behind the last value that was equal
}

var memos = sync.Pool{New: func() any { return new(memo) }}

// check is Check of the text, or of the other one.
func (m *memo) check(src string) error {
	s := checkers.Get().(*scanner)
	defer s.release()
	s.memo = m
	return s.check(src)
}

// release makes the memory available again, without the text.
func (m *memo) release() {
	m.text, m.known, m.n, m.at = "", false, 0, 0
	memos.Put(m)
}

// mark is the place of an object or list.
type mark struct {
	start, end, depth int
	next              int // index of the first mark behind its end
}

// remembered is value for an object or list.
func (s *scanner) remembered(i, depth int) int {
	m := s.memo
	if depth >= memoDepth {
		s.memo = nil
		end := s.container(i, depth)
		s.memo = m
		return end
	}
	if m.known {
		if size := m.equal(s.src[i:], depth); size > 0 {
			return i + size
		}
		return s.container(i, depth)
	}
	n := m.n
	if n == memoSize {
		return s.container(i, depth)
	}
	m.n++
	end := s.container(i, depth)
	m.marks[n] = mark{i, end, depth, m.n}
	return end
}

// container checks the object or list at i.
func (s *scanner) container(i, depth int) int {
	if s.src[i] == '{' {
		return s.object(i+1, depth+1, nil)
	}
	return s.array(i+1, depth+1, nil)
}

// equal returns the length of the value at the begin of open if it is remembered; 0: it is not.
func (m *memo) equal(open string, depth int) int {
	for i, tries := m.at, 0; i < m.n && tries < memoTries; {
		k := m.marks[i]
		switch {
		case k.depth < depth:
			i++ // its members may be as deep
			continue
		case k.depth == depth:
			if size := k.end - k.start; len(open) >= size && open[:size] == m.text[k.start:k.end] {
				m.at = k.next
				return size
			}
			tries++
		}
		i = k.next
	}
	return 0
}
