export function Problem({ title, text }: { title: string; text?: string }) {
  return (
    <section class="problem" role="alert">
      <h2>{title}</h2>
      {text && <p>{text}</p>}
    </section>
  );
}

// Above what is shown while it cannot be brought up to date.
export function Stale({ error }: { error?: { message: string } }) {
  return error ? <p class="stale" role="alert">Not up to date: {error.message}</p> : null;
}
