package checkpoint

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// LettersShare bounds the bytes of the dead letters in the file, so that routes that fail at
// everything leave room for the rest of the state. The zero value has no bounds.
type LettersShare struct {
	Bytes int64 // of all dead letters; 0: no limit
	Owned int64 // of the dead letters of an [Owner]; the newest one may exceed it; 0: no limit
}

// Owner returns the owner of a route, by its id OWNER/NAME: the include that has the route, or the
// namespace of its object. Empty: the route is of the configuration.
func Owner(route string) string {
	owner, _, owned := strings.Cut(route, "/")
	if !owned {
		return ""
	}
	return owner
}

// loss is a lost dead letter.
type loss struct {
	id            uint64
	route, reason string
}

// overdue returns the dead letters that are too old, or too many or too large once coming is added.
func (l *Letters) overdue(coming map[string][]mark, now time.Time) (lost []loss) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []*standing
	for route, there := range l.routes {
		all = append(all, &standing{route, there, coming[route]})
	}
	for route, come := range coming {
		if len(l.routes[route]) == 0 {
			all = append(all, &standing{route: route, come: come})
		}
	}
	for _, s := range all {
		excess := 0
		if l.cfg.Max > 0 {
			excess = s.len() - l.cfg.Max
		}
		n := len(lost)
		for _, marks := range []*[]mark{&s.there, &s.come} {
			for len(*marks) > 0 {
				m, reason := (*marks)[0], LostCount
				if l.cfg.MaxAge > 0 && now.Sub(m.time) > l.cfg.MaxAge {
					reason = LostAge
				} else if len(lost)-n >= excess {
					break // the rest is newer
				}
				lost, *marks = append(lost, loss{m.id, s.route, reason}), (*marks)[1:]
			}
		}
	}
	return append(lost, l.cfg.Share.excess(all)...)
}

// newMark returns the mark of a dead letter that is stored as a value.
func newMark(l *Letter, stored []byte) mark {
	return mark{l.ID, l.Time, elementBytes + int64(len(stored))}
}

// standing is the dead letters of a route that stay, oldest first: those on disk, and new ones.
type standing struct {
	route       string
	there, come []mark
}

func (s *standing) len() int { return len(s.there) + len(s.come) }

func (s *standing) bytes() (sum int64) {
	for _, marks := range [][]mark{s.there, s.come} {
		for i := range marks {
			sum += marks[i].bytes
		}
	}
	return sum
}

// oldest returns the list that begins with the oldest dead letter. There must be one.
func (s *standing) oldest() *[]mark {
	if len(s.there) > 0 {
		return &s.there
	}
	return &s.come
}

// estate is the dead letters of an owner.
type estate struct {
	owner  string
	bytes  int64
	routes []*standing // with at least one dead letter
}

// evict removes the oldest dead letter.
func (e *estate) evict() loss {
	at := 0
	for i, s := range e.routes {
		if (*s.oldest())[0].id < (*e.routes[at].oldest())[0].id {
			at = i
		}
	}
	s := e.routes[at]
	marks := s.oldest()
	m := (*marks)[0]
	*marks = (*marks)[1:]
	if e.bytes -= m.bytes; s.len() == 0 {
		e.routes = slices.Delete(e.routes, at, at+1)
	}
	return loss{m.id, s.route, LostShare}
}

// exceeds reports whether the owner has more than the bytes, in several dead letters.
func (e *estate) exceeds(bytes int64) bool {
	return bytes > 0 && e.owner != "" && e.bytes > bytes && (len(e.routes) > 1 || e.routes[0].len() > 1)
}

// excess returns the dead letters that exceed the share: the oldest of an owner beyond Owned, and
// then the oldest of the owner that has the most, until all have at most Bytes. So an owner that
// stores much does not evict the dead letters of others.
func (c *LettersShare) excess(all []*standing) (lost []loss) {
	if c.Bytes == 0 && c.Owned == 0 {
		return nil
	}
	sum := int64(0)
	owners := estates(all)
	for _, e := range owners {
		for e.exceeds(c.Owned) {
			lost = append(lost, e.evict())
		}
		sum += e.bytes
	}
	for c.Bytes > 0 && sum > c.Bytes {
		most := slices.MaxFunc(owners, func(a, b *estate) int { return cmp.Compare(a.bytes, b.bytes) })
		sum -= most.bytes
		lost = append(lost, most.evict())
		sum += most.bytes
	}
	return lost
}

// estates returns the dead letters by owner, in the order of their names.
func estates(all []*standing) (owners []*estate) {
	byOwner := make(map[string]*estate)
	for _, s := range all {
		if s.len() == 0 {
			continue
		}
		owner := Owner(s.route)
		e := byOwner[owner]
		if e == nil {
			e = &estate{owner: owner}
			byOwner[owner] = e
			owners = append(owners, e)
		}
		e.bytes += s.bytes()
		e.routes = append(e.routes, s)
	}
	slices.SortFunc(owners, func(a, b *estate) int { return cmp.Compare(a.owner, b.owner) })
	return owners
}

// putLetters writes new dead letters, and returns their marks by route.
func putLetters(tx *writing, letters []Letter) (map[string][]mark, error) {
	entries, err := tx.make(lettersBucket, entriesBucket)
	if err != nil {
		return nil, err
	}
	entries.FillPercent = fullPages
	coming := make(map[string][]mark)
	for i := range letters {
		one, key := &letters[i], pendingKey(letters[i].ID)
		stored := tx.value(entries, key, one.payload())
		if err := tx.store(entries, key, stored); err != nil {
			return nil, err
		}
		coming[one.Route] = append(coming[one.Route], newMark(one, stored))
	}
	return coming, nil
}

// endLetters removes dead letters, and writes the last used ID and the source. In a flood, a new
// one may be lost at once.
func (tx *writing) endLetters(lost []loss, last uint64, source LettersSource) error {
	top, err := tx.make(lettersBucket)
	if err != nil {
		return err
	}
	entries, err := tx.make(lettersBucket, entriesBucket)
	if err != nil {
		return err
	}
	for _, x := range lost {
		if err := tx.remove(entries, pendingKey(x.id)); err != nil {
			return err
		}
	}
	return tx.put(top, []byte(stateKey), lettersState(last, source))
}
