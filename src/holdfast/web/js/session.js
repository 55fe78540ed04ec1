// Who is looking, and what they may do. The server decides; this only says beforehand why it would refuse.
import { getJson } from "./api.js";

const ROLES = ["viewer", "operator", "approver", "admin"];

export const session = { name: "", role: "", isKnown: false };

export async function loadSession() {
  const { name, role } = await getJson("/api/session");
  return Object.assign(session, { name, role, isKnown: true });
}

export const can = (role) => ROLES.indexOf(session.role) >= ROLES.indexOf(role);

// Null, or why an action that needs this role is not for this person.
export const whyNot = (role) => (!session.isKnown || can(role) ? null : `This needs the role ${role}; you are ${session.role}.`);
