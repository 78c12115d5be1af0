package inspect

import (
	"context"
	"slices"

	"github.com/deltarouter/deltarouter/internal/access"
	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/pkg/authz"
)

// rightTo returns the right to get the object of a dead letter, or all objects beside it.
func rightTo(l checkpoint.Letter, named bool) authz.Right {
	of, key := l.Delta.Object().Resource(), l.Delta.Key()
	right := authz.Right{Verb: "get", Group: of.Group, Resource: of.Resource, Namespace: key.Namespace}
	if named {
		right.Name = key.Name
	}
	return right
}

// page returns the ids of the next dead letters of a route that the caller may see, at most limit.
func (d *DeadLetters) page(ctx context.Context, route string, after uint64, limit int) ([]uint64, error) {
	if access.From(ctx) == nil {
		return d.store.IDs(route, after, limit), nil
	}
	return d.visible(ctx, d.store.IDs(route, after, 0), limit)
}

// visible returns the dead letters among ids whose objects the caller may get, at most limit; 0:
// all of them. It asks for the right on all objects of a namespace, so that a page causes few
// questions.
func (d *DeadLetters) visible(ctx context.Context, ids []uint64, limit int) (visible []uint64, err error) {
	if access.From(ctx) == nil {
		return ids, nil
	}
	known := make(map[authz.Right]bool)
	for chunk := range slices.Chunk(ids, lettersAtOnce) {
		letters, err := d.store.Load(chunk)
		if err != nil {
			return nil, err
		}
		for _, letter := range letters {
			right := rightTo(letter, false)
			may, ok := known[right]
			if !ok {
				if may, err = access.Has(ctx, right); err != nil {
					return nil, err
				}
				known[right] = may
			}
			if may {
				visible = append(visible, letter.ID)
			}
			if limit > 0 && len(visible) == limit {
				return visible, nil
			}
		}
	}
	return visible, nil
}
