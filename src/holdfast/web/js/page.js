// A page: `render(main, context)` draws into the empty `main` and may return `{ update, leave }`; docs/web-pages.md says more.
export const definePage = (page) => page;
